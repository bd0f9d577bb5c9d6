// Device: where the numbers of a tensor lie, and who computes with them.
//
//     cpu         the heap of this process; the loops in ops/
//     cuda        memory of the GPU that this thread has chosen; the kernels of cuda/kernels/
//     emulated    the heap, used as if it were a GPU's: the host may not look into it, and the ops run the GPU's kernels, emulated
//     on the
//                 CPU. Slow; for stepping through kernels in a debugger, and so that all that is done on a GPU is tested where
//                 there is none
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

// The device of that name. Throws Error that lists the names.
Device device_named(std::string_view name);

}  // namespace ringside::autograd
