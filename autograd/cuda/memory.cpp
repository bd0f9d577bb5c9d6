// Memory of a GPU, and the stream of each thread.
#include <cstring>
#include <memory>

#include "autograd/cuda/of_device.hpp"
#include "autograd/cuda/stream.hpp"

namespace ringside::autograd {
namespace cuda {
namespace {

// Memory of the host that a GPU reads by itself. A copy out of any other would make the host wait
// for the whole stream: so small ones (ids, targets) go by way of this.
//
//     [ copied | under way | free ............ ]     begun again from the left when it is full, and what is under way has arrived
class Staging {
 public:
  static constexpr std::size_t size = std::size_t{4} << 20;

  Staging() {
    check_cuda(cudaMallocHost(&memory_, size), "allocating memory of the host for copies");
  }
  ~Staging() { static_cast<void>(cudaFreeHost(memory_)); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void copy_in(void* device, const void* host, std::size_t bytes) {
    if (used_ + bytes > size) {
      check_cuda(cudaEventSynchronize(last_), "waiting for copies");
      used_ = 0;
    }
    std::byte* const place = static_cast<std::byte*>(memory_) + used_;
    std::memcpy(place, host, bytes);
    check_cuda(cudaMemcpyAsync(device, place, bytes, cudaMemcpyHostToDevice, compute_stream()),
               "copying to the GPU");
    check_cuda(cudaEventRecord(last_, compute_stream()), "recording an event");
    used_ += (bytes + 15) / 16 * 16;
  }

 private:
  void* memory_ = nullptr;
  std::size_t used_ = 0;
  CudaEvent last_{cudaEventDisableTiming, "making an event"};
};

class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory() {
    int count = 0;
    const cudaError_t result = cudaGetDeviceCount(&count);
    static_cast<void>(cudaGetLastError());
    require(result == cudaSuccess && count > 0,
            "there is no GPU that this process may use ({}): choose the device cpu or emulated; "
            "nvidia-smi shows what there is",
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
    check_cuda(result, "allocating memory");
    return buffer;
  }
  void free(void* buffer) noexcept override { static_cast<void>(cudaFree(buffer)); }

  void copy_in(void* device, const void* host, std::size_t bytes) override {
    if (bytes <= Staging::size / 4) {
      thread_local Staging staging;
      return staging.copy_in(device, host, bytes);
    }
    check_cuda(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, compute_stream()),
               "copying to the GPU");
    synchronise();
  }
  void copy_out(void* host, const void* device, std::size_t bytes) override {
    check_cuda(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, compute_stream()),
               "copying from the GPU");
    synchronise();
  }
  void copy_within(void* to, const void* from, std::size_t bytes) override {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, compute_stream()),
               "copying on the GPU");
  }
  void synchronise() override { check_cuda(cudaStreamSynchronize(compute_stream()), "computing"); }

  std::function<void()> fence() override {
    const auto place = std::make_shared<CudaEvent>(cudaEventDisableTiming, "making an event");
    check_cuda(cudaEventRecord(*place, compute_stream()), "recording an event");
    return [place] { check_cuda(cudaEventSynchronize(*place), "computing"); };
  }

  std::size_t free_bytes() const override {
    std::size_t free = 0, all = 0;
    check_cuda(cudaMemGetInfo(&free, &all), "asking how much memory is free");
    return free;
  }
};

}  // namespace

cudaStream_t compute_stream() {
  thread_local const CudaStream stream("making a stream");
  return stream;
}

}  // namespace cuda

DeviceMemory& cuda_memory() {
  static cuda::CudaMemory memory;
  return memory;
}

}  // namespace ringside::autograd
