#include "transformer/checkpoint/checkpoint.hpp"

#include <set>

#include "base/error.hpp"
#include "transformer/checkpoint/model_files.hpp"
#include "transformer/checkpoint/stored_tensor.hpp"
#include "transformer/parameter_table.hpp"

namespace ringside::transformer {

using autograd::Device;
using autograd::NamedTensor;
using autograd::Tensor;

namespace fs = std::filesystem;

void save_checkpoint(const fs::path& directory, const Model& model, const Metadata& more,
                     const VisitTensors& visit) {
  std::error_code error;
  fs::create_directories(directory, error);
  require(!error, "cannot create the directory {}: {}", directory.string(), error.message());
  std::vector<ArrayView> arrays;
  const ParameterTable table(model.config());
  for (const ParameterEntry& entry : table.entries())
    arrays.push_back({entry.name, stored_type(model.dtype()), entry.shape, {}});
  save_config(directory, model.config(), model.dtype());
  Metadata metadata = more;
  metadata["format"] = "pt";  // transformers requires this entry
  SafetensorsWriter file(directory / "model.safetensors", arrays, metadata);
  const auto write = [&](const NamedTensor& whole) {
    const Tensor on_cpu = whole.tensor.to(Device::cpu);
    file.write(whole.name, view_of(whole.name, on_cpu).bytes);
  };
  if (visit)
    visit(write);
  else
    for (const NamedTensor& parameter : model.named_parameters()) write(parameter);
  file.commit();
}

void load_parameters(const fs::path& directory, const Model& model) {
  ModelFiles files(directory);
  std::set<std::string> known;
  const ParameterTable table(model.config());
  for (const ParameterEntry& entry : table.entries()) known.insert(entry.name);
  if (model.config().tied_head) known.insert(head_name);
  for (const std::string& name : files.names()) {
    // Some versions of transformers stored this table of RoPE, which is computed here.
    const bool computed = name.ends_with("rotary_emb.inv_freq");
    require(computed || known.contains(name),
            "{} holds '{}', which is not a parameter of this model",
            files.holding(name).path().string(), name);
  }
  // A rank that holds only a part of the model checks the whole, so that all ranks refuse alike.
  for (const ParameterEntry& entry : table.entries()) files.holding(entry.name);
  for (const auto& [name, tensor] : model.named_parameters()) {
    const ParameterEntry& entry = table.entry(name);
    read_tensor(files.holding(entry.name), entry.name,
                entry.region(model.part().tensor_rank, model.part().tensor_ranks), tensor);
  }
}

}  // namespace ringside::transformer
