#include "autograd/engine/gradcheck.hpp"

#include <cmath>

#include "autograd/engine/engine.hpp"
#include "autograd/tensor/grad_mode.hpp"
#include "base/random.hpp"

namespace ringside::autograd {

// A central difference with step h is wrong by about h^2 f''' / 6, a forward one by h f'' / 2.
// Rounding adds |f| 1e-16 / h, so a smaller h is no better.
std::vector<GradientFault> gradient_faults(const Function& function, std::vector<Tensor> inputs,
                                           double tolerance) {
  for (Tensor& input : inputs) input.set_requires_grad(true).set_grad({});
  const Tensor y = function(inputs);
  const Tensor weights = Tensor::empty(y.shape(), DType::fp64);
  for (std::int64_t k = 0; k < weights.elements(); ++k)
    weights.values<double>()[k] = random_normal(1234, 0, static_cast<std::uint64_t>(k));
  backward(y, weights);

  const NoGrad no_history;
  const auto loss = [&] {
    const Tensor again = function(inputs).contiguous();
    double total = 0;
    for (std::int64_t k = 0; k < again.elements(); ++k)
      total += weights.values<double>()[k] * again.values<double>()[k];
    return total;
  };
  std::vector<GradientFault> faults;
  for (std::size_t n = 0; n < inputs.size(); ++n) {
    const Tensor grad = inputs[n].grad().defined() ? inputs[n].grad().contiguous() : Tensor();
    for (std::int64_t i = 0; i < inputs[n].elements(); ++i) {
      double& value = inputs[n].values<double>()[i];
      const double before = value, step = 1e-5;
      value = before + step;
      const double above = loss();
      value = before - step;
      const double below = loss();
      value = before;
      const double by_differences = (above - below) / (2 * step);
      const double by_backward = grad.defined() ? grad.values<double>()[i] : 0;
      const bool agree = std::abs(by_backward - by_differences) <=
                         tolerance * (1 + std::abs(by_differences));  // false for NaN
      if (!agree) faults.push_back({n, i, by_differences, by_backward});
    }
  }
  return faults;
}

}  // namespace ringside::autograd
