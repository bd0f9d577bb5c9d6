// Helpers of the kernel tests: test data, comparison, and how to run kernels on the CPU. Each test
// runs the loop that a debugger sees, and then several threads per block and two blocks at once for
// ThreadSanitizer.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "autograd/kernels/emulated/emulated.hpp"
#include "base/random.hpp"

namespace ringside::tests {

using autograd::Compute;

inline constexpr std::array emulations{autograd::cuda::Emulation{1, 1},
                                       autograd::cuda::Emulation{3, 2}};

// Random numbers between -1 and 1. Equal seeds give equal numbers.
template <class S>
std::vector<S> numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<S> all;
  for (std::int64_t i = 0; i < count; ++i)
    all.push_back(
        S(static_cast<float>(2 * random_uniform(seed, 0, static_cast<std::uint64_t>(i)) - 1)));
  return all;
}

// The largest difference, relative to the largest number of both vectors.
template <class S, class T>
double difference(const std::vector<S>& seen, const std::vector<T>& expected) {
  double largest = 1e-30, apart = 0;
  if (seen.size() != expected.size()) return std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const auto a = static_cast<double>(static_cast<Compute<S>>(seen[i])),
               b = static_cast<double>(static_cast<Compute<T>>(expected[i]));
    largest = std::max({largest, std::abs(a), std::abs(b)});
    apart = std::max(apart,
                     std::isfinite(a) ? std::abs(a - b) : std::numeric_limits<double>::infinity());
  }
  return apart / largest;
}

// How much kernels may differ from fp64, relative to the largest number: rounding to fp32, or of
// the results to bf16.
template <class S>
inline constexpr double tolerance = std::is_same_v<S, autograd::Bf16> ? 1e-2 : 1e-5;

}  // namespace ringside::tests
