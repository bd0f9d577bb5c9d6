// The compute stream of a thread, and how a call of CUDA that fails is told.
#pragma once

#include <string_view>

#include <cuda_runtime_api.h>

#include "base/error.hpp"

namespace ringside::autograd::cuda {

// Throws Error unless `result` is success: "silu on device 0: an illegal memory access was encountered (cudaErrorIllegalAddress)". As launches are told
// of late, it may be an earlier one that failed.
inline void check(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return;
  int device = -1;
  static_cast<void>(cudaGetDevice(&device));
  static_cast<void>(cudaGetLastError());
  fail("{} on device {}: {} ({})", what, device, cudaGetErrorString(result), cudaGetErrorName(result));
}

// The calling thread's, on the GPU that is the thread's when it is first asked for. Destroyed with the thread.
cudaStream_t compute_stream();

}  // namespace ringside::autograd::cuda
