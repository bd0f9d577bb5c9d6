// A model in a folder, as Hugging Face's transformers keeps a LlamaForCausalLM: config.json and
// model.safetensors.
//
// What is saved here opens there (`LlamaForCausalLM.from_pretrained(DIR)`), and what is kept there
// opens here.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "autograd/tensor/tensor.hpp"
#include "transformer/checkpoint/safetensors.hpp"
#include "transformer/config.hpp"
#include "transformer/model.hpp"

namespace ringside::transformer {

// The whole folder, made if it is not there. Each file is written beside and renamed,
// model.safetensors last. A tied head is stored once, as the embedding. `more` goes into the
// metadata of model.safetensors. Where parameters are shared out over ranks, `visit` brings each
// together for its argument to be called with; without it they are those of `model`.
using SeeTensor = std::function<void(const autograd::NamedTensor& whole)>;
using VisitTensors = std::function<void(const SeeTensor&)>;
void save_checkpoint(const std::filesystem::path& directory, const Model& model,
                     const Metadata& more = {}, const VisitTensors& visit = {});

// What config.json says. Throws Error with a sentence where it is missing, is no JSON, is of
// another architecture, or asks for something that this model does not do (biases, another
// activation, stretched positions).
Config load_config(const std::filesystem::path& directory);

// Copies the numbers of model.safetensors, or of the shards in which larger models are kept
// (model_files.hpp), into the model's parameters: F32, F64 or BF16 into either dtype. Throws Error
// naming the array where one is missing, has another shape, or is not the model's. The model may be
// half loaded then.
void load_parameters(const std::filesystem::path& directory, const Model& model);

// A contiguous tensor on the CPU as an array to be written, without copying: it must stay alive
// until then.
ArrayView view_of(std::string name, const autograd::Tensor& tensor);

// Every gradient under its parameter's name, as one safetensors file. Parameters without a gradient
// have none in the file.
void save_gradients(const std::filesystem::path& path, const autograd::Module& model);

// The gradients ("gradient.<name>") and the parameters ("parameter.<name>") of a model as one
// safetensors file: what anybody needs to hold one run against another. Parameters without a
// gradient have none in the file.
void dump_step(const std::filesystem::path& path, const autograd::Module& model);

// The same where they are shared out: each `visit` brings them together, one after the other, and
// all are kept until they are written. An empty path writes nothing: for the ranks that only give
// their part.
void dump_step(const std::filesystem::path& path, const VisitTensors& visit_parameters,
               const VisitTensors& visit_gradients);

}  // namespace ringside::transformer
