// The implementations that device_memory() and device_kernels() choose from. autograd/cuda/, the
// room above, defines the cuda_ functions; they throw Error if this build or this machine has no
// GPU. emulated_kernels() throws Error if the library ringside_emulated is not built.
#pragma once

#include "autograd/kernels/device_kernels.hpp"
#include "autograd/tensor/device_memory.hpp"

namespace ringside::autograd {

DeviceMemory& emulated_memory();
DeviceMemory& cuda_memory();
const DeviceKernels& emulated_kernels();
const DeviceKernels& cuda_kernels();

}  // namespace ringside::autograd
