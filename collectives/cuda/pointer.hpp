// Checks that a buffer is memory of a GPU.
#pragma once

#include <array>
#include <cstdint>

#include "base/error.hpp"
#include "base/random.hpp"
#include "collectives/algorithms/chunks.hpp"
#include "collectives/call.hpp"
#include "collectives/cuda/device.hpp"

namespace ringside::collectives::cuda {

// Throws Error unless the buffers of a call are memory of a GPU. A kernel that reads an invalid
// address would make the GPU unusable for the rest of the process. Buffers are used again and
// again: it does not ask the driver about an address that it has asked about lately.
class KnownBuffers {
 public:
  // The buffers that rank `rank` of `size` passes to a call that has a kernel. A rank whose block
  // is empty may pass any address for it.
  void require_device_buffers(const Call& call, int rank, int size, const void* input,
                              const void* output) {
    const bool has_block = Chunks::even(call.count, size).size(rank) > 0;
    if (call.collective != Collective::broadcast &&
        (call.collective != Collective::all_gather || has_block))
      require_device_memory(input, call);
    if (call.collective != Collective::reduce_scatter || has_block)
      require_device_memory(output, call);
  }

  void require_device_memory(const void* pointer, const Call& call) {
    const void*& place =
        known_[mix_bits(reinterpret_cast<std::uintptr_t>(pointer)) % known_.size()];
    if (place == pointer && pointer) return;
    require(is_device_memory(pointer),
            "{}: expected memory of a GPU, got a buffer of the host: allocate it with DeviceBuffer "
            "or cudaMalloc",
            describe(call));
    place = pointer;
  }

 private:
  std::array<const void*, 64> known_{};
};

}  // namespace ringside::collectives::cuda
