#include "autograd/optim/clip.hpp"

#include <cmath>
#include <vector>

#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/threads/parallel.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

namespace {

constexpr std::int64_t grain = 1 << 16;  // elements that are enough work for one more thread

// The sum of x[i]^2, in fp64. An addition takes four cycles, but a processor begins several in each
// cycle, if none waits for another. So the sum is kept as 32 sums: sums[k] adds every 32nd element.
// That is four registers of AVX-512, each with an addition of its own under way, and the loop runs
// as fast as memory delivers. (With `omp simd reduction` GCC 12 keeps the sum in memory instead:
// each addition waits until the one before has been stored and loaded again.)
template <class S>
double sum_of_squares(const S* x, std::int64_t n) {
  constexpr int lanes = 32;
  double sums[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
#pragma omp simd
    for (int k = 0; k < lanes; ++k) {
      const double xi = static_cast<Compute<S>>(x[i + k]);
      sums[k] += xi * xi;
    }
  for (int k = 0; i < n; ++i, ++k) {
    const double xi = static_cast<Compute<S>>(x[i]);
    sums[k] += xi * xi;
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

std::vector<Tensor> gradients_on(Device device, std::span<const Tensor> parameters) {
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : parameters)
    if (parameter.device() == device && parameter.grad().defined())
      gradients.push_back(parameter.grad());
  return gradients;
}

// The host waits once, for one number, however many gradients there are.
double grad_norm_squared_on(Device device, std::span<const Tensor> parameters) {
  const std::vector<Tensor> gradients = gradients_on(device, parameters);
  if (gradients.empty()) return 0;
  const Tensor total = Tensor::empty({}, DType::fp32, device);
  device_kernels(device).sum_of_squares(gradients, 1, total);
  return total.item();
}

}  // namespace

double grad_norm_squared(std::span<const Tensor> parameters) {
  double total = grad_norm_squared_on(Device::cuda, parameters) +
                 grad_norm_squared_on(Device::emulated, parameters);
  for (const Tensor& gradient : gradients_on(Device::cpu, parameters)) {
    dispatch_stored(gradient.dtype(), "grad_norm_squared", [&](auto zero) {
      const auto* const g = gradient.data<decltype(zero)>();
      std::vector<double> of_piece(static_cast<std::size_t>(pieces_of(gradient.elements(), grain)),
                                   0.0);
      parallel_for_pieces(
          gradient.elements(), grain, [&](int piece, std::int64_t begin, std::int64_t end) {
            of_piece[static_cast<std::size_t>(piece)] = sum_of_squares(g + begin, end - begin);
          });
      double of_tensor = 0;
      for (const double squares : of_piece) of_tensor += squares;
      total += of_tensor;
    });
  }
  return total;
}

void scale_grads(std::span<const Tensor> parameters, double factor) {
  if (factor == 1) return;
  for (const Device device : {Device::cuda, Device::emulated})
    if (const std::vector<Tensor> gradients = gradients_on(device, parameters); !gradients.empty())
      device_kernels(device).scale_all(gradients, factor);
  for (const Tensor& gradient : gradients_on(Device::cpu, parameters)) {
    dispatch_stored(gradient.dtype(), "scale_grads", [&](auto zero) {
      using T = decltype(zero);
      T* const g = gradient.data<T>();
      const auto f = static_cast<Compute<T>>(factor);
      parallel_for(gradient.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) g[i] = g[i] * f;
      });
    });
  }
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
