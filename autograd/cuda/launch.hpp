// The launch of a kernel on a GPU, for files that nvcc does not compile.
//
// launch() is defined in launch.cuh and instantiated for each kernel in kernels.cu. A kernel
// that is missing there is a linker error.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace ringside::autograd::cuda {

// Of a block: one float for each of its at most 32 warps (DeviceBlock::sum).
inline constexpr int static_shared_bytes = 32 * sizeof(float);

// Queues `kernel` (block.hpp) with `blocks` blocks on the stream, and returns without waiting for
// it. An error in the running kernel is reported by a later CUDA call.
template <class Kernel>
cudaError_t launch(const Kernel& kernel, std::int64_t blocks, cudaStream_t stream);

}  // namespace ringside::autograd::cuda
