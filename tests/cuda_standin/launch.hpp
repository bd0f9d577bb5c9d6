// The launch of a kernel on the stand-in: what kernel_language.hpp knows of it.
#pragma once

#include <functional>

#include <cuda_runtime_api.h>

namespace ringside::standin {

// Carries out the work of one block. It holds copies of the kernel's arguments.
using BlockBody = std::function<void(dim3 grid, dim3 block)>;

// Checks the launch as the driver does, and queues it. Blocks of a cooperative launch run at once,
// each on a thread of its own; otherwise one after another.
cudaError_t launch_blocks(const cudaLaunchConfig_t& config, const void* kernel, BlockBody body);

}  // namespace ringside::standin
