#include "training/state/step_dump.hpp"

#include <utility>
#include <vector>

#include "transformer/checkpoint/stored_tensor.hpp"

namespace ringside::training {

using autograd::NamedTensor;

namespace fs = std::filesystem;

void save_gradients(const fs::path& path, const autograd::Module& model) {
  std::vector<NamedTensor> gradients;
  for (const auto& [name, tensor] : model.named_parameters())
    if (tensor.grad().defined()) gradients.push_back({name, tensor.grad()});
  transformer::write_tensors(path, std::move(gradients));
}

void dump_step(const fs::path& path, const transformer::VisitTensors& visit_parameters,
               const transformer::VisitTensors& visit_gradients) {
  std::vector<NamedTensor> kept;
  const auto keep_as = [&](const char* prefix) {
    return [&kept, &path, prefix](const NamedTensor& whole) {
      if (!path.empty()) kept.push_back({prefix + whole.name, whole.tensor.clone()});
    };
  };
  visit_parameters(keep_as("parameter."));
  visit_gradients(keep_as("gradient."));
  if (path.empty()) return;
  transformer::write_tensors(path, std::move(kept));
}

}  // namespace ringside::training
