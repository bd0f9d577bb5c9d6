// Cross-entropy over logits whose columns are divided: three numbers a token travel, never logits.
//
//                   rank 0             rank 1
//     z[t]        3  1  0            2  5           the logits of one token, V = 5, target = 1
//     largest     3                  5              joined by max: 5
//     total       e^-2 + e^-4 + e^-5   e^-3 + e^0   of exp(z - largest); joined by sum
//     chosen      1                  0              z[target], 0 where it is not; joined by sum
//
//     loss = log(total) + largest - chosen              the same on both ranks
//     dz   = exp(z - largest) / total - [v == target]   each rank its own columns, no message
//
// The maximum must be that of the whole row. With a maximum of its own, each rank would divide by
// another total. Shoeybi et al., "Megatron-LM" (2019), section 3: the loss is fused with the
// parallel product, so that batch x sequence numbers are sent instead of the logits.
#include "autograd/ops/losses/divided_losses.hpp"

#include <algorithm>
#include <cmath>

#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/device_kernels.hpp"

namespace ringside::autograd {

Tensor targets_seen_here(const Tensor& targets, VocabularyRange range, std::int64_t columns,
                         std::int32_t ignore_index) {
  const Tensor here = Tensor::empty(targets.shape(), DType::int32);
  std::transform(targets.values<std::int32_t>().begin(), targets.values<std::int32_t>().end(),
                 here.values<std::int32_t>().begin(), [&](std::int32_t target) {
                   if (target == ignore_index) return ignored_here;
                   const std::int64_t column = target - range.first;
                   const bool is_here = column >= 0 && column < columns;
                   return static_cast<std::int32_t>(is_here ? column : columns);
                 });
  return here;
}

// Step 2.
void join(const RowNumbers& numbers, const Tensor& own_largest, const RowStatistics& statistics) {
  statistics.max_over_ranks(numbers.largest);
  dispatch(own_largest.dtype(), "linear_cross_entropy", [&]<class T>(T) {
    // A total of exp(z - own largest) becomes one of exp(z - largest of all).
    for (std::int64_t t = 0; t < own_largest.elements(); ++t)
      numbers.sums.data<T>()[t] *=
          std::exp(own_largest.data<T>()[t] - numbers.largest.data<T>()[t]);
  });
  statistics.sum_over_ranks(numbers.sums);
}

// Step 3.
void losses_of_whole_rows(const RowNumbers& whole, const Tensor& targets, const Tensor& losses) {
  const std::int64_t rows = losses.elements();
  dispatch(whole.largest.dtype(), "linear_cross_entropy", [&]<class T>(T) {
    const T *const largest = whole.largest.data<T>(), *const total = whole.sums.data<T>(),
                   *const chosen = total + rows;
    for (std::int64_t t = 0; t < rows; ++t)
      losses.data<double>()[t] = targets.data<std::int32_t>()[t] == ignored_here
                                     ? 0
                                     : static_cast<double>(largest[t] + std::log(total[t])) -
                                           static_cast<double>(chosen[t]);
  });
}

Tensor losses_of_divided_rows(const Tensor& z, const Tensor& targets, double weight, bool gradient,
                              DType dtype, const RowStatistics& statistics, const Tensor& losses) {
  const DeviceKernels& kernels = kernels_of(z);
  const RowNumbers numbers = kernels.numbers_of_rows(z, targets);
  const Tensor own_largest = numbers.largest.clone();
  join(numbers, own_largest, statistics);
  losses_of_whole_rows(numbers, targets.to(Device::cpu), losses);
  if (gradient) kernels.gradient_of_rows(z, targets, own_largest, numbers, weight);
  return gradient ? to_storage_dtype(z, dtype) : z;
}

}  // namespace ringside::autograd
