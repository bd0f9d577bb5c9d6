#include "autograd/ops/losses/loss.hpp"

#include <algorithm>

#include "autograd/kernels/device_kernels.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

std::int64_t count_targets(const char* op, const Tensor& targets, std::int64_t vocabulary,
                           std::int32_t ignore_index) {
  std::int64_t count = 0;
  for (const std::int32_t target : targets.values<std::int32_t>()) {
    if (target == ignore_index) continue;
    require(target >= 0 && target < vocabulary, "{}: target {} is not in 0..{}", op, target,
            vocabulary - 1);
    ++count;
  }
  return count;
}

double weight_of(std::int64_t count) {
  return 1 / static_cast<double>(std::max<std::int64_t>(count, 1));
}

Tensor empty_losses(std::int64_t tokens, Device device) {
  return Tensor::empty({tokens}, device == Device::cpu ? DType::fp64 : DType::fp32, device);
}

Tensor mean_loss(const Tensor& losses, std::int64_t count, DType dtype) {
  const Tensor mean = Tensor::empty({}, dtype, losses.device());
  if (losses.device() != Device::cpu) {
    device_kernels(losses.device()).sum(losses, weight_of(count), mean);
    return mean;
  }
  double total = 0;
  for (const double loss : losses.values<double>()) total += loss;
  mean.fill_(count == 0 ? 0 : total / static_cast<double>(count));
  return mean;
}

}  // namespace ringside::autograd
