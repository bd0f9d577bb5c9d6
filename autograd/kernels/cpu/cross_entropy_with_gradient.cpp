// The loss of each row and its gradient in one pass, for linear_cross_entropy.
#include <algorithm>
#include <cmath>

#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "autograd/kernels/exp.hpp"
#include "autograd/kernels/largest.hpp"
#include "autograd/kernels/rows.hpp"

namespace ringside::autograd {

namespace {

// One row of logits z -> its loss -log softmax(z)[target], and dz, which may be z. Otherwise z is
// overwritten by exp(z - largest).
//
//     dz[v] = (softmax(z)[v] - [v == target]) weight
template <class T, class S>
double loss_of_row(T* z, std::int64_t n, std::int32_t target, T weight, S* dz) {
  const T largest = largest_of<T>(z, n);
  const T chosen = z[target];
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t v = 0; v < n; ++v) {
    z[v] = fast_exp(z[v] - largest);
    total += z[v];
  }
  const T factor = weight / total, of_target = z[target] * factor - weight;
#pragma omp simd
  for (std::int64_t v = 0; v < n; ++v) dz[v] = z[v] * factor;
  dz[target] = of_target;
  return static_cast<double>(largest + std::log(total)) - static_cast<double>(chosen);
}

}  // namespace

// z [rows, V], targets [rows] -> losses [rows], dz [rows, V]
void CpuKernels::cross_entropy_with_gradient(const Tensor& z, const Tensor& targets,
                                             std::int32_t ignore_index, double row_weight,
                                             const Tensor& losses, const Tensor& dz) const {
  const std::int64_t vocabulary = z.size(1);
  const std::int32_t* const target = targets.data<std::int32_t>();
  double* const loss = losses.data<double>();
  dispatch_stored(dz.dtype(), "linear_cross_entropy", [&]<class S>(S) {
    using T = Compute<S>;
    const T weight = static_cast<T>(row_weight);
    parallel_for(z.size(0), row_grain(vocabulary), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T* const logits = z.data<T>() + row * vocabulary;
        S* const gradients = dz.data<S>() + row * vocabulary;
        if (target[row] == ignore_index) {
          loss[row] = 0;
          std::fill_n(gradients, vocabulary, S(T(0)));
        } else {
          loss[row] = loss_of_row(logits, vocabulary, target[row], weight, gradients);
        }
      }
    });
  });
}

}  // namespace ringside::autograd
