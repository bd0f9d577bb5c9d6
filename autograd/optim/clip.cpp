#include "autograd/optim/clip.hpp"

#include <cmath>
#include <vector>

#include "autograd/kernels/device_kernels.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

// The host waits once for each device, for one number, however many gradients there are.
double grad_norm_squared(std::span<const Tensor> parameters) {
  double squares = 0;
  for (const Device device : all_devices) {
    std::vector<Tensor> gradients;
    for (const Tensor& parameter : parameters)
      if (parameter.device() == device && parameter.grad().defined())
        gradients.push_back(parameter.grad());
    if (gradients.empty()) continue;
    const DeviceKernels& kernels = device_kernels(device);
    const Tensor total = Tensor::empty({}, kernels.sum_dtype(), device);
    kernels.sum_of_squares(gradients, total);
    squares += total.item();
  }
  return squares;
}

double clip_factor(double norm, double max_norm) {
  require(max_norm > 0, "clip_grad_norm: expected a maximal norm above 0, got {}", max_norm);
  const double factor = max_norm / (norm + 1e-6);
  return factor >= 1 ? 1 : factor;  // NaN stays NaN, so that it is noticed
}

double clip_grad_norm(std::span<const Tensor> parameters, double max_norm) {
  const double norm = std::sqrt(grad_norm_squared(parameters)),
               factor = clip_factor(norm, max_norm);
  for (const Tensor& parameter : parameters)
    if (const Tensor& gradient = parameter.grad(); gradient.defined() && factor != 1)
      kernels_of(gradient).scale(gradient, factor, gradient);
  return norm;
}

}  // namespace ringside::autograd
