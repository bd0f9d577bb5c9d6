#include "autograd/optim/clip.hpp"

#include <cmath>
#include <vector>

#include "autograd/kernels/device_kernels.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

namespace {

std::vector<Tensor> gradients_on(Device device, std::span<const Tensor> parameters) {
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : parameters)
    if (parameter.device() == device && parameter.grad().defined())
      gradients.push_back(parameter.grad());
  return gradients;
}

}  // namespace

// The host waits once for each device, for one number, however many gradients there are.
double grad_norm_squared(std::span<const Tensor> parameters) {
  double squares = 0;
  for (const Device device : all_devices)
    if (const std::vector<Tensor> gradients = gradients_on(device, parameters);
        !gradients.empty()) {
      const DeviceKernels& kernels = device_kernels(device);
      const Tensor total = Tensor::empty({}, kernels.sum_dtype(), device);
      kernels.sum_of_squares(gradients, total);
      squares += total.item();
    }
  return squares;
}

void scale_grads(std::span<const Tensor> parameters, double factor) {
  if (factor == 1) return;
  for (const Device device : all_devices)
    if (const std::vector<Tensor> gradients = gradients_on(device, parameters); !gradients.empty())
      device_kernels(device).scale_all(gradients, factor);
}

double clip_factor(double norm, double max_norm) {
  require(max_norm > 0, "clip_grad_norm: expected a maximal norm above 0, got {}", max_norm);
  const double factor = max_norm / (norm + 1e-6);
  return factor >= 1 ? 1 : factor;  // NaN stays NaN, so that it is noticed
}

double clip_grad_norm(std::span<const Tensor> parameters, double max_norm) {
  const double norm = std::sqrt(grad_norm_squared(parameters));
  scale_grads(parameters, clip_factor(norm, max_norm));
  return norm;
}

}  // namespace ringside::autograd
