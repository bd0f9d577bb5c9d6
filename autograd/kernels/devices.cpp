// The table of devices: device_memory() (tensor/device_memory.hpp) and device_kernels().
#include "autograd/kernels/devices.hpp"

#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

DeviceMemory& device_memory(Device device) {
  require(device != Device::cpu,
          "the CPU has no DeviceMemory: its tensors are read and written in place");
  return device == Device::cuda ? cuda_memory() : emulated_memory();
}

const DeviceKernels& device_kernels(Device device) {
  static const CpuKernels cpu_kernels;
  if (device == Device::cpu) return cpu_kernels;
  return device == Device::cuda ? cuda_kernels() : emulated_kernels();
}

}  // namespace ringside::autograd
