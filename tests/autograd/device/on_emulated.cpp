#include "tests/autograd/device/device_under_test.hpp"

namespace ringside::tests {

autograd::Device device_under_test() {
  return autograd::Device::emulated;
}
bool skipped() {
  return false;
}

}  // namespace ringside::tests
