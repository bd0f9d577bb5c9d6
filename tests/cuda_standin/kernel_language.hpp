// What nvcc gives to a .cu file before its first line, for the C++ compiler of the host.
//
// A block has one thread here: threadIdx is 0 and blockDim is 1, whatever the launch says. Kernels
// read both, so they divide their work accordingly.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include <cuda_runtime_api.h>

#include "tests/cuda_standin/launch.hpp"

#define __launch_bounds__(...)

inline constexpr uint3 threadIdx{0, 0, 0};
inline constexpr uint3 blockDim{1, 1, 1};
inline thread_local dim3 gridDim, blockIdx;

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  std::tuple<std::decay_t<Parameters>...> copies(std::forward<Arguments>(arguments)...);
  return ringside::standin::launch_blocks(*config, reinterpret_cast<const void*>(kernel),
                                          [kernel, copies](dim3 grid, dim3 block) {
                                            gridDim = grid;
                                            blockIdx = block;
                                            std::apply(kernel, copies);
                                          });
}
