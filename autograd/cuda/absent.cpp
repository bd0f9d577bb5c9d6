// Replaces memory.cpp and kernels_on_cuda.cpp in a build without the CUDA Toolkit.
#include "autograd/kernels/devices.hpp"
#include "base/error.hpp"

namespace ringside::autograd {
namespace {

constexpr const char* missing =
    "this build has no CUDA: install the CUDA Toolkit 13, then configure with the preset cuda and "
    "build again";

}  // namespace

DeviceMemory& cuda_memory() {
  fail("{}", missing);
}
const DeviceKernels& cuda_kernels() {
  fail("{}", missing);
}

}  // namespace ringside::autograd
