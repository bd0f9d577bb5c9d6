// Every call of CUDA is checked here, and told with what it was for and on which device.
#pragma once

#include <string_view>

#include <cuda_runtime_api.h>

#include "base/error.hpp"

namespace ringside::collectives::cuda {

// Throws Error unless `result` is success: "all_reduce of 8 fp32 (sum) on rank 1, device 0: launching the kernel: invalid argument
// (cudaErrorInvalidValue)". `what` says what was tried, and for whom. Also clears CUDA's memory of the last error, so that it is told once.
inline void check(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return;
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess) device = -1;
  static_cast<void>(cudaGetLastError());
  const auto where = device < 0 ? std::string("no device") : fmt::format("device {}", device);
  fail("{}, {}: {} ({})", what, where, cudaGetErrorString(result), cudaGetErrorName(result));
}

}  // namespace ringside::collectives::cuda
