// What is ordered and what is not: copies, events, fences, contexts.
#include <chrono>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/tensor/device_memory.hpp"
#include "autograd/tensor/tensor.hpp"
#include "base/cuda.hpp"
#include "collectives/cuda/device.hpp"
#include "tests/cuda_standin/standin.hpp"

using namespace ringside;
using collectives::cuda::DeviceBuffer;

namespace {

constexpr std::size_t bytes = 4096;

// The first byte of device memory, read on a stream that nothing else uses.
std::byte first_byte(const void* device) {
  const CudaStream stream("making a stream");
  std::byte seen{};
  check_cuda(cudaMemcpyAsync(&seen, device, 1, cudaMemcpyDeviceToHost, stream), "copying");
  check_cuda(cudaStreamSynchronize(stream), "waiting");
  return seen;
}

}  // namespace

TEST_CASE("a copy from pageable memory returns before it lands") {
  void* device = nullptr;
  std::vector<std::byte> host(bytes, std::byte{1}), seen(bytes);
  REQUIRE(cudaMalloc(&device, bytes) == cudaSuccess);
  {
    const standin::HeldStreams held;
    CHECK(cudaMemcpy(device, host.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess);
    host.assign(bytes, std::byte{2});  // the source has been read
    CHECK(cudaStreamQuery(nullptr) == cudaErrorNotReady);
    CHECK(cudaGetLastError() == cudaErrorNotReady);
  }
  CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
  CHECK(first_byte(device) == std::byte{1});
  CHECK(cudaFree(device) == cudaSuccess);
}

TEST_CASE("DeviceBuffer::copy_from returns when the bytes are there for every stream") {
  DeviceBuffer buffer(bytes);
  for (int i = 0; i < 50; ++i) {
    const std::vector<std::byte> host(bytes, std::byte(i));
    buffer.copy_from(host.data(), bytes);
    CHECK(first_byte(buffer.data()) == std::byte(i));
  }
}

TEST_CASE("a stream waits for the latest record of an event at the time of the call") {
  const CudaStream first("making a stream"), second("making a stream");
  const CudaEvent event(cudaEventDisableTiming, "making an event");
  CHECK(cudaStreamWaitEvent(second, event, 0) == cudaSuccess);  // no record: nothing to wait for
  CHECK(cudaStreamSynchronize(second) == cudaSuccess);
  DeviceBuffer from(bytes), into(bytes);
  for (int i = 1; i < 20; ++i) {
    const std::vector<std::byte> host(bytes, std::byte(i));
    check_cuda(cudaMemcpyAsync(from.data(), host.data(), bytes, cudaMemcpyHostToDevice, first),
               "copying");
    check_cuda(cudaEventRecord(event, first), "recording");
    check_cuda(cudaStreamWaitEvent(second, event, 0), "waiting");
    check_cuda(cudaMemcpyAsync(into.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, second),
               "copying");
    check_cuda(cudaStreamSynchronize(second), "waiting");
    CHECK(first_byte(into.data()) == std::byte(i));
  }
}

TEST_CASE("memory is freed after the work of a stream that was destroyed and has ended") {
  const DeviceBuffer from(bytes);
  DeviceBuffer into(bytes);
  {
    const CudaStream stream("making a stream");
    check_cuda(cudaMemcpyAsync(into.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream),
               "copying");
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the stream is gone by now
}

// A thread without a device of its own uses device 0, and a call of the runtime makes a context
// there, of half a gigabyte.
TEST_CASE("a fence that another thread waits for makes no context on another GPU") {
  std::thread([] {
    standin::set_machine(8);
    collectives::cuda::choose_device(3);
    const auto x = autograd::Tensor::full({100}, 2, autograd::DType::fp32, autograd::Device::cuda);
    const auto wait = autograd::device_memory(autograd::Device::cuda).fence();
    bool is_device = false;
    std::thread([&] {
      wait();
      is_device = collectives::cuda::is_device_memory(x.address());
    }).join();
    CHECK(is_device);
    CHECK(standin::usage().contexts == 1u << 3);
  }).join();
  standin::set_machine(1);
}
