// A stream and an event of CUDA that go when their owner goes, also when its constructor throws.
#pragma once

#include <utility>

#include <cuda_runtime_api.h>

#include "collectives/cuda/error.hpp"

namespace ringside::collectives::cuda {

// Of the calling thread's device; it does not wait for the default stream, nor that for it.
class Stream {
 public:
  explicit Stream(std::string_view what) { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), what); }
  ~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT: it stands where a stream stands

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event(unsigned flags, std::string_view what) { check(cudaEventCreateWithFlags(&event_, flags), what); }
  ~Event() { static_cast<void>(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }  // NOLINT: likewise

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace ringside::collectives::cuda
