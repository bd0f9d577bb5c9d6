// Whether the tests that need a GPU are skipped.
#pragma once

#include <cstdio>

#include "collectives/cuda/device.hpp"

namespace ringside::tests {

// Prints the reason in the form by which ctest counts a test as skipped.
inline bool skipped() {
  const auto missing = collectives::cuda::what_is_missing();
  if (missing) std::printf("SKIPPED: %s\n", missing->c_str());
  return missing.has_value();
}

}  // namespace ringside::tests
