// A GPU that does not finish: ranks that share it, and a rank of cuda_ipc, end with a sentence at
// their deadline, or at once if they are interrupted; and what cannot be freed does not hold them.
#include <functional>
#include <future>
#include <thread>

#include <doctest/doctest.h>

#include "base/cuda.hpp"
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
