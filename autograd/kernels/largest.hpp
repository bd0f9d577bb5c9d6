// The largest number of a row, at the speed of whole vectors.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ringside::autograd {

// x [n], with n >= 1. Position j belongs to maximum j % 32. GCC divides a single maximum into such
// lanes by itself, but Clang compares one number after the other, 17 times as slowly: with a NaN
// the order counts.
template <class T, class S>
T largest_of(const S* x, std::int64_t n) {
  constexpr std::int64_t lanes = 32;
  T most[lanes];
  std::fill_n(most, lanes, static_cast<T>(x[0]));
  std::int64_t j = 0;
  for (; j + lanes <= n; j += lanes)
    for (std::int64_t lane = 0; lane < lanes; ++lane)
      most[lane] = std::max(most[lane], static_cast<T>(x[j + lane]));
  for (; j < n; ++j) most[0] = std::max(most[0], static_cast<T>(x[j]));
  return *std::max_element(most, most + lanes);
}

}  // namespace ringside::autograd
