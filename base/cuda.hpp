// Helpers for the CUDA runtime, used by collectives/ and autograd/: checked calls, and owners of a
// stream and of an event. Include it only in files that are built with the CUDA Toolkit.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include <cuda_runtime_api.h>

#include "base/error.hpp"

namespace ringside {

// Throws Error unless `result` is success: "all_reduce of 8 fp32 (sum) on rank 1: launching the
// kernel, device 0: invalid argument (cudaErrorInvalidValue)". `what` names the attempt. A kernel
// fails after its launch, so the cause may be an earlier one. Clears CUDA's last error, so that it
// is reported once.
inline void check_cuda(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return;
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess) device = -1;
  static_cast<void>(cudaGetLastError());
  const auto where = device < 0 ? std::string("no device") : fmt::format("device {}", device);
  fail("{}, {}: {} ({})", what, where, cudaGetErrorString(result), cudaGetErrorName(result));
}

// Set when a stream of this process may wait for a peer that is gone, or for a kernel that does not
// end. cudaFree, cudaFreeHost and the closing of shared memory wait for all work of the device, and
// would not return. So from then on nothing is freed: the driver does it when the process ends.
inline std::atomic<bool> device_is_stuck = false;

inline void free_device_memory(void* memory) noexcept {
  if (!device_is_stuck) static_cast<void>(cudaFree(memory));
}
inline void free_pinned_memory(void* memory) noexcept {
  if (!device_is_stuck) static_cast<void>(cudaFreeHost(memory));
}

// A function of the driver as of CUDA version `since` (11040 is 11.4), looked up at run time: the
// program is not linked with libcuda, which a machine without a GPU does not have.
template <class Function>
Function* driver_function(const char* name, unsigned since) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check_cuda(cudaGetDriverEntryPointByVersion(name, &function, since, cudaEnableDefault, &found),
             fmt::format("looking up {} in the driver", name));
  require(found == cudaDriverEntryPointSuccess && function,
          "the NVIDIA driver has no {}: it is too old for CUDA 12", name);
  return reinterpret_cast<Function*>(function);
}

// A stream on the calling thread's device. It does not synchronise with the default stream.
class CudaStream {
 public:
  explicit CudaStream(std::string_view what) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), what);
  }
  ~CudaStream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT: converts on purpose

 private:
  cudaStream_t stream_ = nullptr;
};

// An event on the calling thread's device.
class CudaEvent {
 public:
  CudaEvent(unsigned flags, std::string_view what) {
    check_cuda(cudaEventCreateWithFlags(&event_, flags), what);
  }
  ~CudaEvent() { static_cast<void>(cudaEventDestroy(event_)); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  operator cudaEvent_t() const { return event_; }  // NOLINT: converts on purpose

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace ringside
