// SavedRun: what the state file of a checkpoint says about its run. It is stored as text in the
// metadata of the safetensors file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "autograd/tensor/dtype.hpp"
#include "training/trainer.hpp"
#include "transformer/checkpoint/safetensors.hpp"
#include "transformer/data/vocabulary.hpp"
#include "transformer/model.hpp"

namespace ringside::training {

// Hashes of all parameters and of all optimizer state. They detect damage, and files from different
// checkpoints; they do not protect against deliberate changes.
struct Checksums {
  std::uint64_t parameters = 0, state = 0;
};

struct SavedRun {
  std::int64_t step = 0;  // steps taken
  autograd::DType dtype = autograd::DType::fp32;
  TrainerOptions options;                   // those that influence the numbers of a run
  std::uint32_t text = 0;                   // fingerprint of the text
  std::uint32_t tokenizer = 0;              // fingerprint of the vocabulary; 0: bytes
  std::vector<std::filesystem::path> data;  // the files of the text; empty: unknown, or default
  std::optional<Checksums> checksums;       // none: do not check
  std::filesystem::path directory, file;    // the checkpoint, and its state file
};

// The metadata of a state file, without its checksums.
transformer::Metadata metadata_of(const transformer::Model& model, const Trainer& trainer,
                                  const std::vector<std::filesystem::path>& data = {});
void add_checksums(transformer::Metadata& metadata, const Checksums& checksums);

// Reads metadata back. All but `directory` and `file` is set. Throws Error that names the entry
// that is missing or invalid.
SavedRun saved_run_from(const transformer::Metadata& metadata);

// Throw Error unless the run was trained on a text with this fingerprint, or with this vocabulary,
// which is that of `data`. load_state() also checks; a launcher checks before it starts ranks.
void require_text_of(const SavedRun& run, std::uint32_t fingerprint);
void require_vocabulary_of(const SavedRun& run, const transformer::Vocabulary& vocabulary,
                           const std::vector<std::filesystem::path>& data);

// What the user types to encode a text: "ringside tokenize --tokenizer t/ --data book.txt --out
// NAME.u16". Without `text` the default corpus.
std::string command_to_encode(const std::filesystem::path& tokenizer,
                              const std::vector<std::filesystem::path>& text);

// The options in which `now` differs from the saved run, one sentence each: "batch was 16 and is
// 32". Only options that influence the numbers of a run.
std::vector<std::string> changes_since(const SavedRun& run, const TrainerOptions& now);

}  // namespace ringside::training
