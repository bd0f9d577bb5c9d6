// The losses of a divided vocabulary where the logits are on a device: its kernels see the logits,
// and the numbers of each row pass through the host (divided_losses.cpp).
#include <vector>

#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/ops/losses/divided_losses.hpp"

namespace ringside::autograd {

namespace {

// Step 1 on a device. Its kernel gives log_sum = log sum exp(z) and loss = log_sum - z[target] of
// this rank's columns. That says the same: with largest = log_sum, total is 1. Leaves z as it is.
RowNumbers numbers_of_rows_on_device(const Tensor& z, const Tensor& targets) {
  const std::int64_t rows = z.size(0), columns = z.size(1);
  const Tensor losses = Tensor::empty({rows}, DType::fp32, z.device()),
               log_sums = Tensor::empty({rows}, DType::fp32, z.device());
  device_kernels(z.device()).cross_entropy(z, targets, ignored_here, losses, log_sums);
  const Tensor loss = losses.to(Device::cpu), target = targets.to(Device::cpu);
  const RowNumbers numbers{log_sums.to(Device::cpu), Tensor::full({2, rows}, 1)};
  for (std::int64_t t = 0; t < rows; ++t) {
    const std::int32_t column = target.data<std::int32_t>()[t];
    const bool is_here = column >= 0 && column < columns;
    numbers.sums.data<float>()[rows + t] =
        is_here ? numbers.largest.data<float>()[t] - loss.data<float>()[t] : 0;
  }
  return numbers;
}

// Step 3 on a device: the kernel computes exp(z - log_sum) with the log_sum of the whole rows. To
// it, a target of another rank is no column of this row.
Tensor gradient_of_rows_on_device(const Tensor& z, const Tensor& targets, const RowNumbers& whole,
                                  double weight, DType dtype) {
  const std::int64_t rows = z.size(0);
  const Tensor log_sums = Tensor::empty({rows});
  for (std::int64_t t = 0; t < rows; ++t)
    log_sums.data<float>()[t] =
        whole.largest.data<float>()[t] + std::log(whole.sums.data<float>()[t]);
  device_kernels(z.device())
      .cross_entropy_backward(z, targets, ignored_here, log_sums.to(z.device()), weight,
                              Tensor::full({}, 1, DType::fp32, z.device()), z);
  return to_storage_dtype(z, dtype);
}

}  // namespace

Tensor losses_of_divided_rows(const Tensor& z, const Tensor& targets, double weight, bool gradient,
                              DType dtype, const RowStatistics& statistics, const Tensor& losses) {
  if (z.device() == Device::cpu) {
    losses_of_divided_rows_on_cpu(z, targets, weight, gradient, statistics, losses);
    return gradient ? to_storage_dtype(z, dtype) : z;
  }
  const RowNumbers numbers = numbers_of_rows_on_device(z, targets);
  join(numbers, numbers.largest.clone(), statistics);
  const Tensor on_host = Tensor::empty(losses.shape(), DType::fp64);
  losses_of_whole_rows(numbers, targets.to(Device::cpu), on_host);
  std::vector<float> rounded(on_host.values<double>().begin(), on_host.values<double>().end());
  losses.copy_(Tensor::from(rounded, losses.shape()));
  return gradient ? gradient_of_rows_on_device(z, targets, numbers, weight, dtype) : z;
}

}  // namespace ringside::autograd
