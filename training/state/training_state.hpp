// Training state: what a run needs besides its model to continue, saved in the model's directory.
//
//     DIR/config.json                the model (checkpoint.hpp). Its metadata names the state file
//     DIR/model.safetensors
//     DIR/training-20.safetensors    the optimizer's state after step 20. Its metadata holds the
//                                    step and the options of the run (saved_run.hpp)
//     DIR/tokenizer.json             the tokenizer, unless tokens are bytes, and
//     DIR/vocabulary.json            the bytes of its tokens (vocabulary.hpp)
//
// Initial values, batches and samples are functions of a counter, so the step number is the whole
// position in the data. A resumed run gives the same bits as one that was never interrupted.
//
// Saving is atomic, although two files cannot be renamed at once. The new state file gets an unused
// name. It takes effect when model.safetensors, which names it, is renamed into place. The old
// state file is deleted last. A reader finds either the old checkpoint or the new one.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "training/state/saved_run.hpp"
#include "training/trainer.hpp"
#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/data/vocabulary.hpp"

namespace ringside::training {

// Saves model and state, and makes the directory if necessary. Every rank must call it, since
// parameters and state may be sharded; rank 0 writes, with one whole tensor in memory at a time.
// The files are the same for every number of ranks and every parallel strategy. Only one process
// may write to a directory at a time.
//
// `vocabulary` is the one that the trainer's corpus was made with. It is saved too, before the
// model that needs it. `data` are the files of the text, for a run that resumes. Throws Error if
// something fails; the previous checkpoint then stays.
void save_run(const std::filesystem::path& directory, const transformer::Model& model,
              const Trainer& trainer, const transformer::Vocabulary& vocabulary = {},
              const std::vector<std::filesystem::path>& data = {});

// The same in two halves, so that training goes on while files are written (background_save.hpp).
// Copies parameters and state on rank 0, and returns there the function that writes them, once, on
// any thread; on other ranks it does nothing. `model`, of which it reads only the configuration,
// and `vocabulary` must outlive it. Until it is called the copy takes the memory of the whole
// model's parameters and state, which checkpoint_bytes() tells.
std::function<void()> copy_run(const std::filesystem::path& directory,
                               const transformer::Model& model, const Trainer& trainer,
                               const transformer::Vocabulary& vocabulary,
                               const std::vector<std::filesystem::path>& data = {});

// Throws Error if the directory has a tokenizer.json of another vocabulary. A checkpoint saved
// there would be read with the wrong tokens, and the file may belong to another model, so it is not
// overwritten.
void require_no_other_tokenizer(const std::filesystem::path& directory,
                                const transformer::Vocabulary& vocabulary);

// Throws Error if the directory has the model of another run than `resumed`, which must not be
// lost.
void require_no_other_run(const std::filesystem::path& directory,
                          const std::optional<SavedRun>& resumed);

// Reads the description of the run, but no tensors. Throws Error if there is no checkpoint, or only
// a model. `check` may read the files and throw, too. If another process replaces the checkpoint
// meanwhile, the new one is read and checked.
SavedRun read_run(const std::filesystem::path& directory,
                  const std::function<void(const SavedRun&)>& check = {});

// Loads the optimizer's state and the step number into `trainer`. Its model must already have the
// checkpoint's parameters (load_parameters). Every rank must call it. Throws Error if the state is
// damaged, belongs to other parameters, another optimizer, text or tokenizer, or differs between
// ranks.
void load_state(const SavedRun& run, const transformer::Model& model, Trainer& trainer);

}  // namespace ringside::training
