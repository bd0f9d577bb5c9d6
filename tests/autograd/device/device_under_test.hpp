// Which device the tests of this folder are about: every file is in two programs, which differ in
// where this is answered (on_emulated.cpp, on_cuda.cpp).
#pragma once

#include "autograd/tensor/device.hpp"

namespace ringside::tests {

autograd::Device device_under_test();

// Whether that device is missing. Then it says why, in the words by which ctest counts a test as
// skipped.
bool skipped();

}  // namespace ringside::tests
