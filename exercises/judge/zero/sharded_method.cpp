#include "exercises/judge/zero/sharded_method.hpp"

#include <map>

#include "ddp/replicate.hpp"
#include "ddp/tensor_collectives.hpp"

namespace ringside::exercises {

using autograd::Tensor;

void ShardedMethod::give_whole_gradients() const {
  std::map<std::string, Tensor> whole;  // on rank 0
  visit_gradients(
      [&](const autograd::NamedTensor& each) { whole[each.name] = each.tensor.clone(); });
  for (const auto& [name, parameter] : ddp::trained_parameters(module_)) {
    const Tensor exists = Tensor::full({1}, whole.contains(name) ? 1 : 0, autograd::DType::fp64);
    ddp::broadcast(exists, 0, group_, "whether there is a gradient");
    if (exists.item() == 0) continue;
    const Tensor gradient =
        group_.rank() == 0 ? whole.at(name) : Tensor::zeros(parameter.shape(), parameter.dtype());
    ddp::broadcast(gradient, 0, group_, "a whole gradient");
    parameter.set_grad(gradient);
  }
}

}  // namespace ringside::exercises
