#include <cstdio>

#include "autograd/tensor/device_memory.hpp"
#include "base/error.hpp"
#include "tests/autograd/device/device_under_test.hpp"

namespace ringside::tests {

autograd::Device device_under_test() {
  return autograd::Device::cuda;
}

bool skipped() {
  try {
    static_cast<void>(autograd::device_memory(autograd::Device::cuda));
    return false;
  } catch (const Error& missing) {
    std::printf("SKIPPED: %s\n", missing.what());
    return true;
  }
}

}  // namespace ringside::tests
