#include "transformer/parallel_strategy.hpp"
#include "autograd/optim/clip.hpp"

#include <cmath>

namespace ringside::transformer {

using autograd::Tensor;

std::unique_ptr<autograd::Optimizer> ParallelStrategy::make_optimizer(
    std::vector<autograd::ParameterGroup> groups, const MakeOptimizer& make) {
  return make(std::move(groups));
}

double ParallelStrategy::clip_gradients(autograd::Optimizer& optimizer, double max_norm) {
  std::vector<Tensor> parameters;
  for (const autograd::ParameterGroup& group : optimizer.groups()) {
    for (const autograd::NamedTensor& parameter : group.parameters)
      parameters.push_back(parameter.tensor);
  }
  const double norm = std::sqrt(autograd::grad_norm_squared(parameters));
  if (max_norm > 0) optimizer.set_gradient_scale(autograd::clip_factor(norm, max_norm));
  return norm;
}

void ParallelStrategy::visit_parameters(const autograd::Module& model, const SeeTensor& see) const {
  for (const autograd::NamedTensor& parameter : model.named_parameters()) see(parameter);
}

void ParallelStrategy::visit_gradients(const autograd::Module& model, const SeeTensor& see) const {
  for (const auto& [name, parameter] : model.named_parameters())
    if (parameter.grad().defined()) see({name, parameter.grad()});
}

void ParallelStrategy::visit_state(const autograd::Optimizer& optimizer,
                                   const SeeTensor& see) const {
  for (const autograd::NamedTensor& each : optimizer.state()) see(each);
}

void ParallelStrategy::fill_state(autograd::Optimizer& optimizer, const SeeTensor& fill) const {
  for (const autograd::NamedTensor& each : optimizer.state()) fill(each);
}

}  // namespace ringside::transformer
