// Logits whose columns are divided over ranks: what a rank computes from its own columns. Steps 1
// and 3 of ops/losses/divided_losses.cpp.
#include <algorithm>
#include <cmath>

#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "autograd/kernels/exp.hpp"
#include "autograd/kernels/rows.hpp"

namespace ringside::autograd {

// Step 1, in this rank's columns only. Overwrites z by exp(z - largest).
RowNumbers CpuKernels::numbers_of_rows(const Tensor& z, const Tensor& targets) const {
  const std::int64_t rows = z.size(0), columns = z.size(1);
  const RowNumbers numbers{Tensor::empty({rows}, z.dtype()), Tensor::empty({2, rows}, z.dtype())};
  const std::int32_t* const target = targets.data<std::int32_t>();
  dispatch(z.dtype(), "linear_cross_entropy", [&]<class T>(T) {
    T* const logits = z.data<T>();
    T* const largest = numbers.largest.data<T>();
    T* const total = numbers.sums.data<T>();
    T* const chosen = total + rows;
    parallel_for(rows, row_grain(columns), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        T* const row = logits + t * columns;
        const bool is_here = target[t] >= 0 && target[t] < columns;
        chosen[t] = is_here ? row[target[t]] : T(0);
        T most = row[0], sum = 0;
#pragma omp simd reduction(max : most)
        for (std::int64_t v = 0; v < columns; ++v) most = std::max(most, row[v]);
#pragma omp simd reduction(+ : sum)
        for (std::int64_t v = 0; v < columns; ++v) {
          row[v] = fast_exp(row[v] - most);
          sum += row[v];
        }
        largest[t] = most;
        total[t] = sum;
      }
    });
  });
  return numbers;
}

// Step 3: z holds exp(z - own largest), and becomes dz.
void CpuKernels::gradient_of_rows(const Tensor& z, const Tensor& targets, const Tensor& own_largest,
                                  const RowNumbers& whole, double row_weight) const {
  const std::int64_t columns = z.size(1);
  dispatch(z.dtype(), "linear_cross_entropy", [&]<class T>(T) {
    const T weight = static_cast<T>(row_weight);
    parallel_for(z.size(0), row_grain(columns), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        T* const row = z.data<T>() + t * columns;
        const std::int32_t target = targets.data<std::int32_t>()[t];
        if (target == ignored_here) {
          std::fill_n(row, columns, T(0));
          continue;
        }
        const T factor = std::exp(own_largest.data<T>()[t] - whole.largest.data<T>()[t]) /
                         whole.sums.data<T>()[t] * weight;
#pragma omp simd
        for (std::int64_t v = 0; v < columns; ++v) row[v] *= factor;
        if (target < columns) row[target] -= weight;
      }
    });
  });
}

}  // namespace ringside::autograd
