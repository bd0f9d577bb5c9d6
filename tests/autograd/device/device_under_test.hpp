// The device under test. Each test of this folder is in two programs; on_emulated.cpp and
// on_cuda.cpp define these functions for one program each.
#pragma once

#include "autograd/tensor/device.hpp"

namespace ringside::tests {

autograd::Device device_under_test();

// Whether this machine lacks the device. Then it prints the reason in the form by which ctest
// counts a test as skipped.
bool skipped();

}  // namespace ringside::tests
