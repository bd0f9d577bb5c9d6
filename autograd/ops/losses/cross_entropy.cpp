// cross_entropy: softmax, logarithm, selection of the target and mean in one op.
#include <algorithm>
#include <cmath>

#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/exp.hpp"
#include "autograd/kernels/rows.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/losses/loss.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

// One row of logits z [n] -> its loss -log softmax(z)[target], and log_sum, the logarithm of the
// sum of exp(z), which backward needs. The largest logit is subtracted before exp, so that nothing
// overflows. An ignored target has loss 0. S is the storage type of the elements, T their compute
// type.
template <class S, class T = Compute<S>>
double loss_of_row(const S* z, std::int64_t n, std::int32_t target, std::int32_t ignore_index,
                   T& log_sum) {
  if (target == ignore_index) return 0;
  T largest = z[0];
#pragma omp simd reduction(max : largest)
  for (std::int64_t v = 0; v < n; ++v) largest = std::max<T>(largest, z[v]);
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t v = 0; v < n; ++v) total += fast_exp(static_cast<T>(z[v]) - largest);
  log_sum = largest + std::log(total);
  return static_cast<double>(log_sum) - static_cast<double>(static_cast<T>(z[target]));
}

// One row of dz = (softmax(z) - [v == target]) weight; 0 for an ignored target, which has no
// log_sum.
template <class S, class T = Compute<S>>
void loss_of_row_backward(const S* z, std::int64_t n, std::int32_t target,
                          std::int32_t ignore_index, T log_sum, T weight, S* dz) {
  if (target == ignore_index) {
    std::fill_n(dz, n, S(T(0)));
    return;
  }
#pragma omp simd
  for (std::int64_t v = 0; v < n; ++v) dz[v] = fast_exp(static_cast<T>(z[v]) - log_sum) * weight;
  dz[target] = fast_exp(static_cast<T>(z[target]) - log_sum) * weight - weight;
}

// z [tokens, V], targets [tokens] -> losses [tokens], and the log_sum of each row. bf16 logits are
// converted one by one where they are read.
void forward_rows(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                  const Tensor& losses, const Tensor& log_sums) {
  const std::int64_t vocabulary = z.size(-1);
  const std::int32_t* const target = targets.data<std::int32_t>();
  double* const loss = losses.data<double>();
  dispatch_stored(z.dtype(), "cross_entropy", [&](auto zero) {
    using S = decltype(zero);
    const S* const row = z.data<S>();
    Compute<S>* const log_sum = log_sums.data<Compute<S>>();
    parallel_for(
        targets.elements(), row_grain(vocabulary), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t)
            loss[t] =
                loss_of_row(row + t * vocabulary, vocabulary, target[t], ignore_index, log_sum[t]);
        });
  });
}

// dz [tokens, V], where each counted row has the weight `row_weight`.
void backward_rows(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                   const Tensor& log_sums, double row_weight, const Tensor& dz) {
  const std::int64_t vocabulary = z.size(-1);
  const std::int32_t* const target = targets.data<std::int32_t>();
  dispatch_stored(z.dtype(), "cross_entropy", [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    const S* const row = z.data<S>();
    S* const drow = dz.data<S>();
    parallel_for(targets.elements(), row_grain(vocabulary),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t t = begin; t < end; ++t)
                     loss_of_row_backward(row + t * vocabulary, vocabulary, target[t], ignore_index,
                                          log_sums.data<T>()[t], static_cast<T>(row_weight),
                                          drow + t * vocabulary);
                 });
  });
}

}  // namespace

// z [tokens, V], targets [tokens] -> loss, a scalar
//
//     loss     = mean over tokens t of (log sum_v exp(z[t, v]) - z[t, target])
//     dz[t, v] = (softmax(z[t])[v] - [v == target]) / count
//
// Backward computes the softmax from z and the saved logarithms; the softmax itself is not saved.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets_input, std::int32_t ignore_index) {
  require_ids("cross_entropy", "targets", targets_input);
  require(
      logits.dim() >= 1 && logits.size(-1) > 0 && leading(logits.shape()) == targets_input.shape(),
      "cross_entropy: expected logits [..., V] and targets [...], got {} and {}", logits.shape(),
      targets_input.shape());
  const Tensor z = logits.contiguous();
  // The host checks the targets, whatever device the logits are on.
  const Tensor on_host = targets_input.to(Device::cpu).contiguous(),
               targets = on_host.to(z.device());
  const std::int64_t tokens = targets.elements(),
                     count = count_targets("cross_entropy", on_host, z.size(-1), ignore_index);
  const DType computed = compute_dtype(z.dtype());
  const Tensor losses = empty_losses(tokens, z.device()),
               log_sums = Tensor::empty({tokens}, computed, z.device());
  if (z.device() == Device::cpu)
    forward_rows(z, targets, ignore_index, losses, log_sums);
  else
    device_kernels(z.device()).cross_entropy(z, targets, ignore_index, losses, log_sums);

  return record(
      "cross_entropy", mean_loss(losses, count, computed), {z},
      [z, targets, log_sums, count, ignore_index](const Node&, const Tensor& dloss) -> Gradients {
        const Tensor dz = empty_like(z);
        if (z.device() == Device::cpu)
          backward_rows(z, targets, ignore_index, log_sums,
                        dloss.item() / static_cast<double>(std::max<std::int64_t>(count, 1)), dz);
        else
          device_kernels(z.device())
              .cross_entropy_backward(z, targets, ignore_index, log_sums, weight_of(count), dloss,
                                      dz);
        return {dz};
      });
}

}  // namespace ringside::autograd
