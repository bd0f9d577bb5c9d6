#include "transformer/parallel_form.hpp"

#include <cmath>

namespace ringside::transformer {

using autograd::Tensor;

std::unique_ptr<autograd::Optimizer> ParallelForm::make_optimizer(std::vector<autograd::ParameterGroup> groups,
                                                                  const MakeOptimizer& make) {
  return make(std::move(groups));
}

double ParallelForm::clip_gradients(autograd::Optimizer& optimizer, double max_norm) {
  std::vector<Tensor> parameters;
  for (const autograd::ParameterGroup& group : optimizer.groups()) {
    for (const autograd::NamedTensor& parameter : group.parameters) parameters.push_back(parameter.tensor);
  }
  const double norm = std::sqrt(autograd::grad_norm_squared(parameters));
  if (max_norm > 0) optimizer.set_gradient_scale(autograd::clip_factor(norm, max_norm));
  return norm;
}

}  // namespace ringside::transformer
