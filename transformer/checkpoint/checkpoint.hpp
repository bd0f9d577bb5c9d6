// Checkpoint: a model in a directory, in the format of Hugging Face's transformers: config.json and
// model.safetensors, with the names of LlamaForCausalLM.
//
// `LlamaForCausalLM.from_pretrained(DIR)` opens what Ringside saves, and Ringside opens what
// transformers saves.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "autograd/tensor/tensor.hpp"
#include "transformer/checkpoint/config_file.hpp"
#include "transformer/checkpoint/safetensors.hpp"
#include "transformer/model.hpp"

namespace ringside::transformer {

// Calls its argument with whole tensors, one at a time. Each is valid only during the call.
using SeeTensor = std::function<void(const autograd::NamedTensor& whole)>;
using VisitTensors = std::function<void(const SeeTensor&)>;

// Saves the model, and makes the directory if necessary. Each file is replaced atomically,
// model.safetensors last. A tied head is stored once, as the embedding. `more` is added to the
// metadata of model.safetensors. If parameters are sharded, `visit` gathers them; without it the
// parameters of `model` are saved. Throws Error with the path and the reason.
void save_checkpoint(const std::filesystem::path& directory, const Model& model,
                     const Metadata& more = {}, const VisitTensors& visit = {});

// Loads model.safetensors, or the shards of a larger model (model_files.hpp), into the parameters
// of the model. A part of a model reads only its regions of the arrays. F16, BF16, F32 and F64 are
// converted to the model's dtype. Throws Error that names the array if one is missing, has another
// shape, or is not a parameter of the model. Some parameters may have been loaded by then.
void load_parameters(const std::filesystem::path& directory, const Model& model);

// What is not as save_checkpoint() left it, in words: keys of config.json, arrays, metadata; empty
// if nothing has changed. Reads all files of the model, and `more` in the same folder. A checkpoint
// without checksums, of another program or an older version, has no changes.
std::string changes_of_checkpoint(const std::filesystem::path& directory,
                                  const std::vector<std::string>& more = {});

}  // namespace ringside::transformer
