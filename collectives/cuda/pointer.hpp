// Checks that a buffer is memory of a GPU.
#pragma once

#include <array>
#include <cstdint>

#include "base/cuda.hpp"
#include "base/random.hpp"
#include "collectives/call.hpp"

namespace ringside::collectives::cuda {

// Throws Error unless `pointer` is memory of a GPU. A kernel that reads an invalid address would
// make the GPU unusable for the rest of the process.
inline void require_device_memory(const void* pointer, std::string_view what) {
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, pointer),
             "asking whether a buffer is memory of a GPU");
  require(
      attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged,
      "{}: expected memory of a GPU, got a buffer of the host: allocate it with DeviceBuffer or "
      "cudaMalloc",
      what);
}

// The same for buffers that are used again and again: it does not ask the driver about an address
// that it has asked about lately.
class KnownBuffers {
 public:
  void require_device_memory(const void* pointer, const Call& call) {
    const void*& place =
        known_[mix_bits(reinterpret_cast<std::uintptr_t>(pointer)) % known_.size()];
    if (place == pointer && pointer) return;
    cuda::require_device_memory(pointer, describe(call));
    place = pointer;
  }

 private:
  std::array<const void*, 64> known_{};
};

}  // namespace ringside::collectives::cuda
