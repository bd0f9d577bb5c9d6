// Checks that a buffer is memory of a GPU.
#pragma once

#include "base/cuda.hpp"

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

}  // namespace ringside::collectives::cuda
