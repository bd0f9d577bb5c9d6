// Sample: all cases of a product, or with RINGSIDE_SAMPLE=3 about a third of them, the first
// always.
// `.ci/run` sets it for the sanitizers, which look for faults of memory and of order: these do not
// depend on the combination. Which cases: by a hash of their number, so that no value of an inner
// loop is always left out.
#pragma once

#include <cstdint>

#include "base/environment.hpp"

namespace ringside::testing {

class Sample {
 public:
  bool takes() { return (number_++ * 2654435761u >> 16) % every_ == 0; }

 private:
  std::uint32_t number_ = 0;
  std::uint32_t every_ =
      static_cast<std::uint32_t>(integer_environment("RINGSIDE_SAMPLE", 1, 1000).value_or(1));
};

}  // namespace ringside::testing
