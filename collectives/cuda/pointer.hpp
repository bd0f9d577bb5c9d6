// Whether a caller has given what he should.
#pragma once

#include "base/cuda.hpp"

namespace ringside::collectives::cuda {

// Throws Error unless `pointer` is memory of a GPU: a kernel would otherwise end the whole process'
// use of it.
inline void require_device_memory(const void* pointer, std::string_view what) {
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, pointer), "asking where a buffer lies");
  require(attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged,
          "{}: this group is for memory of a GPU, and a buffer of the host was given: allocate it "
          "with DeviceBuffer or cudaMalloc",
          what);
}

}  // namespace ringside::collectives::cuda
