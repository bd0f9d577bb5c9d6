#include "ddp/replicate.hpp"

#include "ddp/tensor_collectives.hpp"

namespace ringside::ddp {

void replicate(const autograd::Module& module, collectives::ProcessGroup& group) {
  for (const auto& [name, parameter] : module.named_parameters())
    broadcast(parameter, 0, group, name);
  for (const auto& [name, buffer] : module.named_buffers()) broadcast(buffer, 0, group, name);
}

std::vector<autograd::NamedTensor> trained_parameters(const autograd::Module& module) {
  std::vector<autograd::NamedTensor> trained;
  for (const auto& parameter : module.named_parameters())
    if (parameter.tensor.requires_grad()) trained.push_back(parameter);
  return trained;
}

}  // namespace ringside::ddp
