#include "autograd/tensor/device.hpp"

#include <algorithm>

#include "autograd/cuda/of_device.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

Device device_named(std::string_view name) {
  const auto found = std::find_if(all_devices.begin(), all_devices.end(),
                                  [&](Device device) { return name == name_of(device); });
  require(found != all_devices.end(), "there is no device '{}': choose cpu, cuda or emulated",
          name);
  return *found;
}

DeviceMemory& device_memory(Device device) {
  require(device != Device::cpu,
          "the memory of the CPU is no DeviceMemory: its tensors are read and written in place");
  return device == Device::cuda ? cuda_memory() : emulated_memory();
}

const DeviceKernels& device_kernels(Device device) {
  require(device != Device::cpu, "the CPU has no DeviceKernels: its loops are in ops/");
  return device == Device::cuda ? cuda_kernels() : emulated_kernels();
}

}  // namespace ringside::autograd
