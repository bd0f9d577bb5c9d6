// Sample: all cases of a product, or with RINGSIDE_SAMPLE=3 the first and about a third of the
// rest.
// `.ci/run` sets it for the sanitizers, which look for faults of memory and of order: these rarely
// depend on the combination. Not every third case, which in an inner loop of three would be the
// same value each time.
#pragma once

#include <cstdint>

#include "base/environment.hpp"

namespace ringside::testing {

class Sample {
 public:
  // Multiples of the root of 2, without their integer part, spread evenly over 0 to 1.
  bool takes() {
    constexpr std::uint32_t root = 1779033703;  // (sqrt(2) - 1) * 2^32
    return (std::uint64_t{number_++ * root} * every_) >> 32 == 0;
  }

 private:
  std::uint32_t number_ = 0;
  std::uint32_t every_ =
      static_cast<std::uint32_t>(integer_environment("RINGSIDE_SAMPLE", 1, 1000).value_or(1));
};

}  // namespace ringside::testing
