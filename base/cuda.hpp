// What both halves of the GPU, collectives' and autograd's, say to CUDA: calls that are checked,
// and a stream and an event that go when their owner goes, also when its constructor throws. Only
// files that are compiled where the CUDA Toolkit is include this.
#pragma once

#include <string>
#include <string_view>

#include <cuda_runtime_api.h>

#include "base/error.hpp"

namespace ringside {

// Throws Error unless `result` is success: "all_reduce of 8 fp32 (sum) on rank 1, device 0:
// launching the kernel: invalid argument (cudaErrorInvalidValue)". `what` says what was tried, and
// for whom; as kernels fail after their launch, it may be an earlier one that did. Also clears
// CUDA's memory of the last error, so that it is told once.
inline void check_cuda(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return;
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess) device = -1;
  static_cast<void>(cudaGetLastError());
  const auto where = device < 0 ? std::string("no device") : fmt::format("device {}", device);
  fail("{}, {}: {} ({})", what, where, cudaGetErrorString(result), cudaGetErrorName(result));
}

// Of the calling thread's device; it does not wait for the default stream, nor that for it.
class CudaStream {
 public:
  explicit CudaStream(std::string_view what) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), what);
  }
  ~CudaStream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT: it stands where a stream stands

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaEvent {
 public:
  CudaEvent(unsigned flags, std::string_view what) {
    check_cuda(cudaEventCreateWithFlags(&event_, flags), what);
  }
  ~CudaEvent() { static_cast<void>(cudaEventDestroy(event_)); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  operator cudaEvent_t() const { return event_; }  // NOLINT: likewise

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace ringside
