// The memory of a GPU, and the compute stream of each thread.
#include <cstring>
#include <memory>

#include "autograd/cuda/stream.hpp"
#include "autograd/kernels/devices.hpp"

namespace ringside::autograd {
namespace cuda {
namespace {

// Pinned host memory, through which small copies to the GPU go (ids, targets). A copy from pageable
// memory would make the host wait for the whole stream.
//
//     [ done | in flight | free ............ ]     when it is full: wait for the copies in flight,
//                                                  then start again from the left
class Staging {
 public:
  static constexpr std::size_t size = std::size_t{4} << 20;

  Staging() { check_cuda(cudaMallocHost(&memory_, size), "allocating pinned memory for copies"); }
  ~Staging() { free_pinned_memory(memory_); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void copy_in(void* device, const void* host, std::size_t bytes) {
    if (used_ + bytes > size) {
      check_cuda(cudaEventSynchronize(last_), "waiting for copies");
      used_ = 0;
    }
    std::byte* const staged = static_cast<std::byte*>(memory_) + used_;
    std::memcpy(staged, host, bytes);
    check_cuda(cudaMemcpyAsync(device, staged, bytes, cudaMemcpyHostToDevice, compute_stream()),
               "copying to the GPU");
    check_cuda(cudaEventRecord(last_, compute_stream()), "recording an event");
    used_ += (bytes + 15) / 16 * 16;
  }

 private:
  void* memory_ = nullptr;
  std::size_t used_ = 0;
  CudaEvent last_{cudaEventDisableTiming, "creating an event"};
};

class CudaMark final : public StreamMark {
 public:
  CudaMark() { check_cuda(cudaEventRecord(event_, compute_stream()), "recording an event"); }

  double seconds_since(const StreamMark& earlier) const override {
    check_cuda(cudaEventSynchronize(event_), "computing");
    float milliseconds = 0;
    check_cuda(
        cudaEventElapsedTime(&milliseconds, static_cast<const CudaMark&>(earlier).event_, event_),
        "reading the time of an event");
    return milliseconds * 1e-3;
  }

 private:
  CudaEvent event_{cudaEventDefault, "creating an event"};
};

class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory() {
    int count = 0;
    const cudaError_t result = cudaGetDeviceCount(&count);
    static_cast<void>(cudaGetLastError());
    require(result == cudaSuccess && count > 0,
            "found no GPU that this process can use ({}): choose the device cpu or emulated; "
            "nvidia-smi lists the GPUs",
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
  void free(void* buffer) noexcept override { free_device_memory(buffer); }

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
    const auto event = std::make_shared<CudaEvent>(cudaEventDisableTiming, "creating an event");
    check_cuda(cudaEventRecord(*event, compute_stream()), "recording an event");
    int device = 0;
    check_cuda(cudaGetDevice(&device), "reading the current device");
    // A thread without a device of its own would make a context on GPU 0, of half a gigabyte.
    return [event, device] {
      check_cuda(cudaSetDevice(device), "selecting a device");
      check_cuda(cudaEventSynchronize(*event), "computing");
    };
  }

  std::unique_ptr<StreamMark> mark() override { return std::make_unique<CudaMark>(); }

  std::size_t free_bytes() const override {
    std::size_t free = 0, all = 0;
    check_cuda(cudaMemGetInfo(&free, &all), "reading how much memory is free");
    return free;
  }
};

}  // namespace

cudaStream_t compute_stream() {
  thread_local const CudaStream stream("creating a stream");
  return stream;
}

}  // namespace cuda

DeviceMemory& cuda_memory() {
  static cuda::CudaMemory memory;
  return memory;
}

}  // namespace ringside::autograd
