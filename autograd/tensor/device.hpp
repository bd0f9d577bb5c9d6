// Device: where the elements of a tensor are stored, and what computes with them.
//
//     cpu         the heap of this process; the loops in kernels/cpu/ compute
//     cuda        memory of the GPU that this thread has selected; the kernels in kernels/shared/
//     emulated    the heap, but the host may not read it directly; the kernels of cuda, run on
//                 the CPU. Slow: for stepping through kernels in a debugger, and for testing
//                 all device code without a GPU
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.hpp"

namespace ringside::autograd {

enum class Device : std::uint8_t { cpu, cuda, emulated };
inline constexpr std::array all_devices{Device::cpu, Device::cuda, Device::emulated};

constexpr const char* name_of(Device device) {
  constexpr std::array<const char*, all_devices.size()> names{"cpu", "cuda", "emulated"};
  return names.at(static_cast<std::size_t>(device));
}

// The device of this name. Throws Error that lists the names.
inline Device device_named(std::string_view name) {
  for (const Device device : all_devices)
    if (name == name_of(device)) return device;
  fail("there is no device '{}': choose cpu, cuda or emulated", name);
}

}  // namespace ringside::autograd
