// Device: where the elements of a tensor are stored, and what computes with them.
//
//     cpu         the heap of this process; the loops in ops/ compute
//     cuda        memory of the GPU that this thread has selected; the kernels in kernels/shared/
//     emulated    the heap, but the host may not read it directly; the kernels of cuda, run on
//                 the CPU. Slow: for stepping through kernels in a debugger, and for testing
//                 all device code without a GPU
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace ringside::autograd {

enum class Device : std::uint8_t { cpu, cuda, emulated };
inline constexpr std::array all_devices{Device::cpu, Device::cuda, Device::emulated};

constexpr const char* name_of(Device device) {
  switch (device) {
    case Device::cpu:
      return "cpu";
    case Device::cuda:
      return "cuda";
    case Device::emulated:
      return "emulated";
  }
  return "unknown";
}

// The device of this name. Throws Error that lists the names.
Device device_named(std::string_view name);

}  // namespace ringside::autograd
