// cross_entropy: softmax, logarithm, choice of the target and mean in one op.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "autograd/bf16.hpp"
#include "autograd/kernels/exp.hpp"
#include "autograd/kernels/rows.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/checks.hpp"

namespace ringside::autograd {

namespace {

// What logits that are kept as S are computed in.
template <class S>
using Computed = std::conditional_t<std::is_same_v<S, double>, double, float>;

// log sum exp of a row, the largest taken out first so that nothing overflows.
template <class S, class T = Computed<S>>
T log_sum_exp(const S* row, std::int64_t n) {
  T largest = row[0];
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) largest = std::max<T>(largest, row[i]);
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < n; ++i) total += fast_exp(static_cast<T>(row[i]) - largest);
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
  dispatch_stored(z.dtype(), "cross_entropy", [&](auto zero) {
    using S = decltype(zero);  // logits are many: bf16 is widened one by one, on the way
    using T = Computed<S>;
    parallel_for(tokens, row_grain(vocabulary), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) log_sums.data<T>()[t] = log_sum_exp(z.data<S>() + t * vocabulary, vocabulary);
    });
    double total = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int32_t target = targets.data<std::int32_t>()[t];
      if (target != ignore_index)
        total += static_cast<double>(log_sums.data<T>()[t]) - static_cast<double>(static_cast<T>(z.data<S>()[t * vocabulary + target]));
    }
    *loss.data<T>() = static_cast<T>(count == 0 ? 0 : total / static_cast<double>(count));
  });

  return record("cross_entropy", loss, {z},
                [z, targets, log_sums, vocabulary, tokens, count, ignore_index](const Node&, const Tensor& dloss) -> Gradients {
                  const Tensor dz = Tensor::empty(z.shape(), z.dtype());
                  dispatch_stored(z.dtype(), "cross_entropy", [&](auto zero) {
                    using S = decltype(zero);
                    using T = Computed<S>;
                    const T weight = static_cast<T>(dloss.item() / static_cast<double>(std::max<std::int64_t>(count, 1)));
                    parallel_for(tokens, row_grain(vocabulary), [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t t = begin; t < end; ++t) {
                        const std::int32_t target = targets.data<std::int32_t>()[t];
                        const S* const row = z.data<S>() + t * vocabulary;
                        S* const drow = dz.data<S>() + t * vocabulary;
                        if (target == ignore_index) {
                          std::fill_n(drow, vocabulary, S(T(0)));
                          continue;
                        }
                        const T log_sum = log_sums.data<T>()[t];
#pragma omp simd
                        for (std::int64_t v = 0; v < vocabulary; ++v) drow[v] = fast_exp(static_cast<T>(row[v]) - log_sum) * weight;
                        drow[target] = fast_exp(static_cast<T>(row[target]) - log_sum) * weight - weight;
                      }
                    });
                  });
                  return {dz};
                });
}

}  // namespace ringside::autograd
