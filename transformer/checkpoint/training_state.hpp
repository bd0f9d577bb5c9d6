// A run that can be gone on with: what training needs beside the model, kept in the model's folder.
//
//     DIR/config.json                  the model, as transformers keeps it (checkpoint.hpp); its metadata names the file below
//     DIR/model.safetensors
//     DIR/training-20.safetensors      the optimizer's state after step 20; its metadata says which run this is, and how far it is
//     DIR/tokenizer.json               where a token is more than a byte: what it is
//
// First values, batches and samples come from counters, so "how far" is one number: the step.
// Nothing else needs to be kept for a run that goes on to give the same bits as one that was never
// interrupted.
//
// Two files cannot be replaced at once, and a crash may come at any moment. So the state is written
// under a name of its own, beside the one that is in use, and takes effect when model.safetensors,
// which names it, is renamed into place; the old state goes last. Whoever reads finds the
// checkpoint before or the one after, never a half of each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/trainer.hpp"

namespace ringside::transformer {

// What a checkpoint says of its run.
struct SavedRun {
  std::int64_t step = 0;  // steps taken
  autograd::DType dtype = autograd::DType::fp32;
  TrainerOptions options;  // but for those that change no number: examinations
  std::uint32_t text = 0;  // the fingerprint of the text
  std::uint32_t tokenizer =
      0;  // that of the vocabulary: 0, as in files from before there were tokenizers, for bytes
  std::filesystem::path directory, file;  // where it was read from; the file with the state
};

// The whole folder, made if it is not there: rank 0 writes, and every rank must call it, since
// parameters and state may be shared out over ranks. A tensor at a time is in memory whole. The
// file is the same whatever the ranks and the form. Only one process writes into a folder at a
// time. Throws Error where that fails, and the checkpoint that was there is still there then.
// `vocabulary` is the one that the trainer's corpus was made with; see require_place_for().
void save_run(const std::filesystem::path& directory, const Model& model, const Trainer& trainer,
              const Vocabulary& vocabulary = {});

// Throws Error if the folder has a tokenizer.json that is not this vocabulary: whoever reads a
// checkpoint there would take the model's tokens for another tokenizer's. Nothing is overwritten,
// for it may be all that makes sense of another model.
void require_place_for(const Vocabulary& vocabulary, const std::filesystem::path& directory);

// What the checkpoint says of itself; no number is read yet. Throws Error where there is none, or
// only a model.
SavedRun read_run(const std::filesystem::path& directory);

// The optimizer's state and the number of steps, into a trainer whose model has the checkpoint's
// parameters already (load_parameters). Every rank must call it. Throws Error with a sentence where
// the state is not that of these parameters, is damaged, is of another optimizer, or is not the
// same on all ranks, and where the text or the tokenizer is another one.
void load_state(const SavedRun& run, const Model& model, Trainer& trainer);

// Throws Error unless `fingerprint` is that of the run's text, and its vocabulary. load_state()
// asks too; a launcher asks before there are ranks.
void require_text_of(const SavedRun& run, std::uint32_t fingerprint);
void require_vocabulary_of(const SavedRun& run, std::uint32_t fingerprint);

// How `now` differs from the run that was saved, in what changes its numbers: a sentence for each,
// "batch was 16 and is 32".
std::vector<std::string> changes_since(const SavedRun& run, const TrainerOptions& now);

}  // namespace ringside::transformer
