// The rows of cross_entropy: softmax, logarithm and selection of the target.
#include <algorithm>
#include <cmath>

#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "autograd/kernels/exp.hpp"
#include "autograd/kernels/largest.hpp"
#include "autograd/kernels/rows.hpp"

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
  const T largest = largest_of<T>(z, n);
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

}  // namespace

// z [tokens, V], targets [tokens] -> losses [tokens], and the log_sum of each row. bf16 logits are
// converted one by one where they are read.
void CpuKernels::cross_entropy(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                               const Tensor& losses, const Tensor& log_sums) const {
  const std::int64_t vocabulary = z.size(-1);
  const std::int32_t* const target = targets.data<std::int32_t>();
  double* const loss = losses.data<double>();
  dispatch_stored(z.dtype(), "cross_entropy", [&]<class S>(S) {
    using T = Compute<S>;
    const S* const row = z.data<S>();
    T* const log_sum = log_sums.defined() ? log_sums.data<T>() : nullptr;
    parallel_for(targets.elements(), row_grain(vocabulary),
                 [&](std::int64_t begin, std::int64_t end) {
                   T unwanted{};
                   for (std::int64_t t = begin; t < end; ++t)
                     loss[t] = loss_of_row(row + t * vocabulary, vocabulary, target[t],
                                           ignore_index, log_sum ? log_sum[t] : unwanted);
                 });
  });
}

// dz [tokens, V]
void CpuKernels::cross_entropy_backward(const Tensor& z, const Tensor& targets,
                                        std::int32_t ignore_index, const Tensor& log_sums,
                                        std::int64_t count, const Tensor& dloss,
                                        const Tensor& dz) const {
  const std::int64_t vocabulary = z.size(-1);
  const std::int32_t* const target = targets.data<std::int32_t>();
  const double row_weight = dloss.item() / static_cast<double>(count);
  dispatch_stored(z.dtype(), "cross_entropy", [&]<class S>(S) {
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

}  // namespace ringside::autograd
