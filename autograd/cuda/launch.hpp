// The launch of a kernel on a GPU, for files that nvcc does not compile.
//
// launch() is defined in device_block.cuh and made for each kernel in kernels.cu; one that is
// missing there is an error of the linker.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace ringside::autograd::cuda {

// Runs `kernel` (block.hpp) with `blocks` blocks, after all that is on the stream. Returns when the
// launch is on its way: what a kernel did wrong is told by a later call.
template <class Kernel>
cudaError_t launch(const Kernel& kernel, std::int64_t blocks, cudaStream_t stream);

}  // namespace ringside::autograd::cuda
