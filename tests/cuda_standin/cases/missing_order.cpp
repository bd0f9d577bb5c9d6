// Work of several streams with one dependency left out, to show what ThreadSanitizer reports.
//
//     missing_order none | copy | event | host | fence
//
// `copy` uses memory on a stream after a copy from pageable memory, without waiting until the copy
// has landed; `event` on a second stream without waiting for an event of the first; `host` reads
// the result of a copy without waiting for its stream; `fence` reads a tensor of another thread's
// stream without a fence. The program is built with RINGSIDE_SANITIZE=thread only. Its tests expect
// a data race for each, and none for `none`.
#include <cstdio>
#include <string_view>
#include <thread>
#include <vector>

#include "autograd/tensor/device_memory.hpp"
#include "autograd/tensor/tensor.hpp"
#include "base/cuda.hpp"

using namespace ringside;

namespace {

constexpr std::size_t bytes = 4096;

struct Memory {
  Memory() { check_cuda(cudaMalloc(&at, bytes), "allocating"); }
  ~Memory() { static_cast<void>(cudaFree(at)); }
  void* at = nullptr;
};

void copy_within(const Memory& to, const Memory& from, cudaStream_t stream) {
  check_cuda(cudaMemcpyAsync(to.at, from.at, bytes, cudaMemcpyDeviceToDevice, stream), "copying");
}

void run(std::string_view missing) {
  const Memory a, b, c;
  const CudaStream first("making a stream"), second("making a stream");
  const CudaEvent event(cudaEventDisableTiming, "making an event");
  const std::vector<std::byte> host(bytes, std::byte{7});
  void* pinned = nullptr;
  check_cuda(cudaMallocHost(&pinned, bytes), "allocating");

  check_cuda(cudaMemcpy(a.at, host.data(), bytes, cudaMemcpyHostToDevice), "copying");
  if (missing != "copy") check_cuda(cudaStreamSynchronize(nullptr), "waiting for the copy");
  copy_within(b, a, first);

  check_cuda(cudaEventRecord(event, first), "recording");
  if (missing != "event") check_cuda(cudaStreamWaitEvent(second, event, 0), "waiting");
  copy_within(c, b, second);

  check_cuda(cudaMemcpyAsync(pinned, c.at, bytes, cudaMemcpyDeviceToHost, second), "copying");
  if (missing != "host") check_cuda(cudaStreamSynchronize(second), "waiting");
  std::printf("host: %d\n", *static_cast<unsigned char*>(pinned));
  check_cuda(cudaFreeHost(pinned), "freeing");  // it waits for the device

  autograd::Tensor made;
  std::thread([&] {
    made = autograd::Tensor::full({1000}, 3, autograd::DType::fp32, autograd::Device::cuda);
    if (missing != "fence") autograd::device_memory(autograd::Device::cuda).synchronise();
  }).join();
  std::printf("tensor: %g\n", made.narrow(0, 5, 1).item());
}

}  // namespace

int main(int argc, char** argv) {
  run(argc > 1 ? argv[1] : "none");
  return 0;
}
