// What the device refuses: sizes of launches, shared memory, copies beyond an allocation, GPUs that
// share no memory.
#include <vector>

#include <doctest/doctest.h>

#include "autograd/cuda/launch.cuh"
#include "base/cuda.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/cuda/kernels.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/cuda_standin/standin.hpp"

using namespace ringside;
using collectives::cuda::DeviceBuffer;

namespace {

// A kernel that needs this much dynamic shared memory.
struct Greedy {
  static constexpr int threads = 128;
  std::size_t bytes = 0;
  std::size_t shared_bytes() const { return bytes; }
  template <class B>
  void operator()(B& block) const {
    if (bytes > 0) block.shared()[bytes - 1] = std::byte{1};
  }
};

}  // namespace

// The limit without opt-in, 48 KiB, counts the static shared memory too.
TEST_CASE("a kernel may need any amount of shared memory up to the limit of the device") {
  const CudaStream stream("making a stream");
  for (const std::size_t bytes :
       {0, 1000, (48 << 10) - 128, (48 << 10) - 127, 48 << 10, (48 << 10) + 1, (227 << 10) - 128}) {
    CAPTURE(bytes);
    // A kernel type of its own would hide that the opt-in of an earlier launch lasts.
    CHECK(autograd::cuda::launch(Greedy{bytes}, 2, stream) == cudaSuccess);
  }
  CHECK(autograd::cuda::launch(Greedy{(227 << 10) - 127}, 2, stream) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

TEST_CASE("a cooperative launch with more blocks than run at once is refused") {
  using namespace collectives::cuda;
  const CudaStream stream("making a stream");
  Task<float> task;
  task.ranks = 2;
  int blocks = 0;
  CHECK(resident_blocks(&blocks) == cudaSuccess);
  // 4 of these blocks fit on a processor; the kernels ask for 1, so that all of them are alike.
  CHECK(launch(task, 4 * blocks / task.ranks + 1, stream) == cudaErrorCooperativeLaunchTooLarge);
  CHECK(cudaGetLastError() == cudaErrorCooperativeLaunchTooLarge);
}

TEST_CASE("a copy beyond its allocation is refused") {
  DeviceBuffer buffer(1000);
  std::vector<std::byte> host(2000);
  CHECK(cudaMemcpy(buffer.data(), host.data(), 1001, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpy(host.data(), static_cast<std::byte*>(buffer.data()) + 1, 1000,
                   cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(host.data(), buffer.data(), 1000, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

TEST_CASE("a GPU that shares no memory with other processes is refused in one sentence") {
  standin::set_machine(1, false);
  CHECK_THROWS_WITH(
      collectives::cuda::make_cuda_ipc_backend(tests::rank_info_of(0, 1, tests::free_port()), {}),
      "rank 0: GPU 0 (stand-in for a GPU) cannot share memory and events with other "
      "processes, which cuda_ipc needs: use nccl");
  standin::set_machine(1);
}
