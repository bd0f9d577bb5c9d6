// Defines launch() of launch.hpp.
#pragma once

#include "autograd/cuda/device_block.cuh"
#include "autograd/cuda/launch.hpp"

namespace ringside::autograd::cuda {

// A kernel must opt in to more than 48 KiB of shared memory. The limit counts its static shared
// memory too, but the opt-in is for the dynamic part.
template <class Kernel>
cudaError_t launch(const Kernel& kernel, std::int64_t blocks, cudaStream_t stream) {
  if (blocks == 0) return cudaSuccess;
  const auto shared_bytes = static_cast<int>(shared_bytes_of(kernel));
  if (shared_bytes + static_shared_bytes > 48 * 1024) {
    const auto result =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(&run<Kernel>),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (result != cudaSuccess) return result;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(Kernel::threads);
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, run<Kernel>, kernel);
}

}  // namespace ringside::autograd::cuda
