// The softmax of one row of attention scores, of which the first are visible.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "autograd/kernels/exp.hpp"
#include "autograd/kernels/largest.hpp"

namespace ringside::autograd {

// How many scores of a row its loops visit: the visible ones, rounded up to whole vectors of
// 16. Compilers compute what is left over after the last whole vector one by one, which took as
// long as all vectors together. So a few hidden scores are made -infinity, and take part: their
// probability is exp(-infinity) = 0.
inline std::int64_t in_whole_vectors(std::int64_t visible, std::int64_t width) {
  return std::min((visible + 15) / 16 * 16, width);
}

// One row of scores -> probabilities in place: of the first `visible` keys, 0 for the rest. Returns
// the logarithm of the sum of exp(score).
template <class T>
T softmax_row(T* row, std::int64_t visible, std::int64_t width) {
  const std::int64_t n = in_whole_vectors(visible, width);
  std::fill(row + visible, row + n, -std::numeric_limits<T>::infinity());
  const T largest = largest_of<T>(row, n);
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t j = 0; j < n; ++j) {
    row[j] = fast_exp(row[j] - largest);
    total += row[j];
  }
  const T scale = 1 / total;
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) row[j] *= scale;
  std::fill(row + n, row + width, T(0));
  return largest + std::log(total);
}

}  // namespace ringside::autograd
