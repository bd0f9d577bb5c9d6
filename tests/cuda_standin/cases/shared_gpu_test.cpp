// A GPU that does not finish: ranks that share it, and a rank of cuda_ipc, end with a sentence at
// their deadline, or at once if they are interrupted; and what cannot be freed does not hold them.
#include <atomic>
#include <barrier>
#include <functional>
#include <future>
#include <thread>

#include <doctest/doctest.h>

#include "base/cuda.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/execution/backend.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/cuda_standin/standin.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

constexpr std::size_t elements = 1000;
constexpr Seconds patience{50};

// Whether the condition became true in time.
bool wait_until(const std::function<bool()>& condition) {
  const Deadline deadline = Deadline::after(patience);
  while (!condition() && !deadline.expired()) std::this_thread::sleep_for(Seconds(0.01));
  return condition();
}

// The data of a rank for several calls, which differ, and so do their sums.
class OnGpu {
 public:
  OnGpu(int rank, int calls) {
    for (int i = 0; i < calls; ++i) {
      const std::vector<float> values(elements, static_cast<float>((rank + 1) * (i + 1)));
      buffers_.emplace_back(elements * sizeof(float));
      buffers_.back().copy_from(values.data(), elements * sizeof(float));
    }
  }
  void enqueue(cuda::DeviceBackend& backend, int i, const std::string& algorithm = "one_shot") {
    Call call;
    call.collective = Collective::all_reduce;
    call.count = elements;
    call.algorithm = number_of(find_algorithm(call.collective, algorithm));
    void* const buffer = buffers_[static_cast<std::size_t>(i)].data();
    backend.enqueue(call, buffer, buffer);
  }
  void must_be(int i, float wanted) const {
    std::vector<float> seen(elements);
    buffers_[static_cast<std::size_t>(i)].copy_to(seen.data(), elements * sizeof(float));
    for (const float value : seen)
      require(value == wanted, "call {}: {} instead of {}", i, value, wanted);
  }

 private:
  std::vector<cuda::DeviceBuffer> buffers_;
};

// Three ranks share a GPU and make one call.
std::vector<std::string> outcomes_of_one_call(const std::shared_ptr<cuda::OneGpuWorld>& world) {
  return on_threads(3, [&](int rank) {
    cuda::choose_device(0);
    const cuda::DeviceBuffer buffer(elements * sizeof(float));
    ProcessGroup group(cuda::make_one_gpu_backend(world, rank));
    group.all_reduce({buffer.data(), elements, DataType::fp32});
  });
}

}  // namespace

TEST_CASE("calls of ranks that share a GPU queue up behind a stream that is held") {
  constexpr int calls = 30;
  const auto world = cuda::make_one_gpu_world(3, patience);
  std::unique_ptr<standin::HeldStreams> held;
  std::atomic<int> returned = 0;
  std::barrier ready(3);
  auto all = std::async(std::launch::async, [&] {
    return on_threads(3, [&](int rank) {
      cuda::choose_device(0);
      const auto backend = cuda::make_one_gpu_backend(world, rank);
      OnGpu data(rank, calls);
      ready.arrive_and_wait();
      if (rank == 0) held = std::make_unique<standin::HeldStreams>();
      ready.arrive_and_wait();
      for (int i = 0; i < calls; ++i) data.enqueue(*backend, i);
      ++returned;
      backend->finish();
      for (int i = 0; i < calls; ++i) data.must_be(i, 6.0f * static_cast<float>(i + 1));
    });
  });
  CHECK(wait_until([&] { return returned == 3; }));  // no host waits for the GPU
  held.reset();
  for (const std::string& outcome : all.get()) CHECK(outcome == "");
}

TEST_CASE("a graph of calls of ranks that share a GPU can be launched again and again") {
  const auto world = cuda::make_one_gpu_world(3, patience);
  const auto outcomes = on_threads(3, [&](int rank) {
    cuda::choose_device(0);
    const auto backend = cuda::make_one_gpu_backend(world, rank);
    const auto stream = static_cast<cudaStream_t>(backend->stream());
    OnGpu data(rank, 2);
    Call barrier;
    barrier.collective = Collective::barrier;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    // The ranks share a stream, so one of them captures and launches for all.
    if (rank == 0)
      check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    backend->enqueue(barrier, nullptr, nullptr);
    for (const char* algorithm : {"one_shot", "two_shot"})
      data.enqueue(*backend, algorithm == std::string("two_shot"), algorithm);
    backend->enqueue(barrier, nullptr, nullptr);
    if (rank == 0) {
      check_cuda(cudaStreamEndCapture(stream, &graph), "capturing");
      check_cuda(cudaGraphInstantiate(&exec, graph, 0), "capturing");
    }
    float sum = 6;
    for (int launches = 0; launches < 3; ++launches, sum *= 3) {
      if (rank == 0) check_cuda(cudaGraphLaunch(exec, stream), "launching");
      backend->enqueue(barrier, nullptr, nullptr);
      backend->finish();
      data.must_be(0, sum);
      data.must_be(1, 2 * sum);
      backend->enqueue(barrier, nullptr, nullptr);
    }
    if (rank != 0) return;
    check_cuda(cudaGraphExecDestroy(exec), "destroying");
    check_cuda(cudaGraphDestroy(graph), "destroying");
  });
  for (const std::string& outcome : outcomes) CHECK(outcome == "");
}

TEST_CASE("ranks that share a GPU have a deadline for a kernel that does not begin") {
  const auto world = cuda::make_one_gpu_world(3, Seconds(2));
  auto held = std::make_unique<standin::HeldStreams>();
  auto call = std::async(std::launch::async, [&] { return outcomes_of_one_call(world); });
  CHECK(call.wait_for(Seconds(20)) == std::future_status::ready);
  held.reset();
  for (const std::string& outcome : call.get())
    CHECK(contains(outcome,
                   "all_reduce of 1000 fp32 (sum, ring): the GPU did not finish within "
                   "2 s"));
  device_is_stuck = false;
}

TEST_CASE("ranks that share a GPU end a kernel that waits for a block that does not run") {
  const auto world = cuda::make_one_gpu_world(3, Seconds(2));
  auto held = std::make_unique<standin::HeldBlock>();
  auto call = std::async(std::launch::async, [&] { return outcomes_of_one_call(world); });
  CHECK(wait_until([] { return standin::usage().blocks > 0; }));
  CHECK(wait_until([] { return standin::usage().blocks == 0; }));  // those that ran have given up
  held.reset();
  for (const std::string& outcome : call.get()) {
    CAPTURE(outcome);
    CHECK(contains(outcome, ": the kernel gave up; rank "));
    CHECK(contains(outcome, " waited 2 s for number "));
  }
  CHECK(!device_is_stuck);  // the kernel saw the abort flag and ended
}

TEST_CASE("a rank that gives up ends the blocks that wait for its call") {
  const auto world = cuda::make_one_gpu_world(3, 2 * patience);
  auto held = std::make_unique<standin::HeldBlock>();
  auto call = std::async(std::launch::async, [&] { return outcomes_of_one_call(world); });
  REQUIRE(wait_until([] { return standin::usage().blocks >= 2; }));
  cuda::make_one_gpu_backend(world, 1)->interrupt("somebody pulled the plug");
  CHECK(wait_until([] { return standin::usage().blocks == 0; }));  // one is held all the while
  held.reset();
  for (const std::string& outcome : call.get()) {
    CAPTURE(outcome);
    CHECK(contains(outcome, "somebody pulled the plug"));
  }
  CHECK(!device_is_stuck);
}

TEST_CASE("a call over cuda_ipc ends at its deadline or when it is interrupted") {
  for (const bool interrupted : {false, true}) {
    CAPTURE(interrupted);
    auto backend = cuda::make_cuda_ipc_backend(rank_info_of(0, 1, free_port()),
                                               {.timeout = Seconds(interrupted ? 100 : 0.5)});
    const cuda::DeviceBuffer buffer(elements * sizeof(float));
    auto held = std::make_unique<standin::HeldStreams>();
    std::string error;
    std::thread call([&] {
      try {
        Call all_reduce;
        all_reduce.collective = Collective::all_reduce;
        all_reduce.count = elements;
        backend->run(all_reduce, buffer.data(), buffer.data());
      } catch (const std::exception& failure) {
        error = failure.what();
      }
    });
    std::this_thread::sleep_for(Seconds(0.2));
    const auto start = Clock::now();
    if (interrupted) backend->interrupt("another rank has failed");
    call.join();
    CHECK(seconds_since(start) < 20);
    CHECK(contains(
        error, interrupted ? "another rank has failed" : "the GPU did not finish within 0.5 s"));
    // The stream is still held: freeing what it uses would wait for it.
    auto end = std::async(std::launch::async, [&] { backend.reset(); });
    CHECK(end.wait_for(Seconds(20)) == std::future_status::ready);
    held.reset();
    end.get();
    device_is_stuck = false;
  }
}
