// Memory of a GPU, and the stream of each thread.
#include <cstring>
#include <memory>

#include "autograd/cuda/of_device.hpp"
#include "autograd/cuda/stream.hpp"

namespace ringside::autograd {
namespace cuda {
namespace {

struct Stream {
  // Not ordered against the default stream, which nobody here uses.
  Stream() { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream"); }
  ~Stream() { static_cast<void>(cudaStreamDestroy(stream)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t stream = nullptr;
};

struct Event {
  Event() { check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event"); }
  ~Event() { static_cast<void>(cudaEventDestroy(event)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t event = nullptr;
};

// Memory of the host that a GPU reads by itself. A copy out of any other would make the host wait for the whole stream: so small
// ones (ids, targets) go by way of this.
//
//     [ copied | under way | free ............ ]     begun again from the left when it is full, and what is under way has arrived
class Staging {
 public:
  static constexpr std::size_t size = std::size_t{4} << 20;

  Staging() { check(cudaMallocHost(&memory_, size), "allocating memory of the host for copies"); }
  ~Staging() { static_cast<void>(cudaFreeHost(memory_)); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void copy_in(void* device, const void* host, std::size_t bytes) {
    if (used_ + bytes > size) {
      check(cudaEventSynchronize(last_.event), "waiting for copies");
      used_ = 0;
    }
    std::byte* const place = static_cast<std::byte*>(memory_) + used_;
    std::memcpy(place, host, bytes);
    check(cudaMemcpyAsync(device, place, bytes, cudaMemcpyHostToDevice, compute_stream()), "copying to the GPU");
    check(cudaEventRecord(last_.event, compute_stream()), "recording an event");
    used_ += (bytes + 15) / 16 * 16;
  }

 private:
  void* memory_ = nullptr;
  std::size_t used_ = 0;
  Event last_;
};

class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory() {
    int count = 0;
    const cudaError_t result = cudaGetDeviceCount(&count);
    static_cast<void>(cudaGetLastError());
    require(result == cudaSuccess && count > 0,
            "there is no GPU that this process may use ({}): choose the device cpu or emulated; nvidia-smi shows what there is",
            result == cudaSuccess ? "none is visible" : cudaGetErrorString(result));
  }

  std::size_t buffer_size(std::size_t bytes) const override { return cuda_buffer_size(bytes); }

  void* allocate(std::size_t size) override {
    void* buffer = nullptr;
    const cudaError_t result = cudaMalloc(&buffer, size);
    if (result == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      return nullptr;
    }
    check(result, "allocating memory");
    return buffer;
  }
  void free(void* buffer) noexcept override { static_cast<void>(cudaFree(buffer)); }

  void copy_in(void* device, const void* host, std::size_t bytes) override {
    if (bytes <= Staging::size / 4) {
      thread_local Staging staging;
      return staging.copy_in(device, host, bytes);
    }
    check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, compute_stream()), "copying to the GPU");
    synchronise();
  }
  void copy_out(void* host, const void* device, std::size_t bytes) override {
    check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, compute_stream()), "copying from the GPU");
    synchronise();
  }
  void copy_within(void* to, const void* from, std::size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, compute_stream()), "copying on the GPU");
  }
  void synchronise() override { check(cudaStreamSynchronize(compute_stream()), "computing"); }

  std::function<void()> fence() override {
    const auto place = std::make_shared<Event>();
    check(cudaEventRecord(place->event, compute_stream()), "recording an event");
    return [place] { check(cudaEventSynchronize(place->event), "computing"); };
  }

  std::size_t free_bytes() const override {
    std::size_t free = 0, all = 0;
    check(cudaMemGetInfo(&free, &all), "asking how much memory is free");
    return free;
  }
};

}  // namespace

cudaStream_t compute_stream() {
  thread_local const Stream stream;
  return stream.stream;
}

}  // namespace cuda

DeviceMemory& cuda_memory() {
  static cuda::CudaMemory memory;
  return memory;
}

}  // namespace ringside::autograd
