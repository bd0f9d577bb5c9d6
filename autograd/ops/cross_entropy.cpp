// cross_entropy: softmax, logarithm, choice of the target and mean in one op.
#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/bf16.hpp"
#include "autograd/kernels/exp.hpp"
#include "autograd/kernels/rows.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/checks.hpp"

namespace ringside::autograd {

namespace {

// log sum exp of a row, the largest taken out first so that nothing overflows.
template <class T>
T log_sum_exp(const T* row, std::int64_t n) {
  T largest = row[0];
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, row[i]);
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < n; ++i) total += fast_exp(row[i] - largest);
  return largest + std::log(total);
}

// How many targets count; checks them all.
std::int64_t count_targets(const Tensor& targets, std::int64_t vocabulary, std::int32_t ignore_index) {
  std::int64_t count = 0;
  for (const std::int32_t target : targets.values<std::int32_t>()) {
    if (target == ignore_index) continue;
    require(target >= 0 && target < vocabulary, "cross_entropy: target {} is not in 0..{}", target, vocabulary - 1);
    ++count;
  }
  return count;
}

}  // namespace

// z [tokens, V], targets [tokens] -> loss = mean over tokens t of (log sum_v exp(z[t, v]) - z[t, target])
//
//     dz[t, v] = (softmax(z[t])[v] - [v == target]) / count        from z and the saved logarithms: the softmax itself is never
//     stored
Tensor cross_entropy(const Tensor& logits, const Tensor& targets_input, std::int32_t ignore_index) {
  require_ids("cross_entropy", "targets", targets_input);
  require(
      logits.dim() >= 1 && logits.size(-1) > 0 && Shape(logits.shape().begin(), logits.shape().end() - 1) == targets_input.shape(),
      "cross_entropy: expected logits [..., V] and targets [...], got {} and {}", logits.shape(), targets_input.shape());
  const Tensor z = logits.contiguous(), targets = targets_input.contiguous();
  const std::int64_t vocabulary = z.size(-1), tokens = targets.elements(), count = count_targets(targets, vocabulary, ignore_index);

  const DType computed = wide_type(z.dtype());
  Tensor loss = Tensor::empty({}, computed);
  const Tensor log_sums = Tensor::empty({tokens}, computed);
  dispatch(computed, "cross_entropy", [&, z = wide(z)](auto zero) {
    using T = decltype(zero);
    parallel_for(tokens, row_grain(vocabulary), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) log_sums.data<T>()[t] = log_sum_exp(z.data<T>() + t * vocabulary, vocabulary);
    });
    double total = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int32_t target = targets.data<std::int32_t>()[t];
      if (target != ignore_index)
        total += static_cast<double>(log_sums.data<T>()[t]) - static_cast<double>(z.data<T>()[t * vocabulary + target]);
    }
    *loss.data<T>() = static_cast<T>(count == 0 ? 0 : total / static_cast<double>(count));
  });

  return record("cross_entropy", loss, {z},
                [z, targets, log_sums, vocabulary, tokens, count, ignore_index](const Node&, const Tensor& dloss) -> Gradients {
                  const Tensor dz = Tensor::empty(z.shape(), log_sums.dtype());
                  dispatch(dz.dtype(), "cross_entropy", [&, z = wide(z)](auto zero) {
                    using T = decltype(zero);
                    const T weight = static_cast<T>(dloss.item() / static_cast<double>(std::max<std::int64_t>(count, 1)));
                    parallel_for(tokens, row_grain(vocabulary), [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t t = begin; t < end; ++t) {
                        const std::int32_t target = targets.data<std::int32_t>()[t];
                        const T* const row = z.data<T>() + t * vocabulary;
                        T* const drow = dz.data<T>() + t * vocabulary;
                        if (target == ignore_index) {
                          std::fill_n(drow, vocabulary, T(0));
                          continue;
                        }
                        const T log_sum = log_sums.data<T>()[t];
#pragma omp simd
                        for (std::int64_t v = 0; v < vocabulary; ++v) drow[v] = fast_exp(row[v] - log_sum) * weight;
                        drow[target] -= weight;
                      }
                    });
                  });
                  return {rounded(dz, z.dtype())};
                });
}

}  // namespace ringside::autograd
