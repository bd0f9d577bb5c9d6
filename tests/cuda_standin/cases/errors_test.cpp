// "Fail the n-th call": whichever call of the runtime fails, the work ends with one sentence, and
// nothing is left on the device. After a failure of cuda_ipc the memory is left to the driver.
#include <functional>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/tensor.hpp"
#include "base/cuda.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/cuda_standin/standin.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::tests;

namespace {

// The error of `body` on a thread of its own, whose stream and caches end with it.
std::string error_of(const std::function<void()>& body) {
  std::string error;
  std::thread([&] {
    try {
      body();
    } catch (const std::exception& failure) {
      error = failure.what();
    }
  }).join();
  return error;
}

std::string left() {
  const standin::Usage now = standin::usage();
  return fmt::format("streams {}, events {}, allocations {}, opened {}", now.streams, now.events,
                     now.allocations, now.opened);
}

// Fails each call of `body` in turn. `frees`: nothing may be left.
void check_every_failure(const std::function<void()>& body, bool sticky, bool frees) {
  REQUIRE(error_of(body) == "");  // and loads libraries, which stay
  const std::string before = left();
  const auto calls_before = standin::usage().calls;
  REQUIRE(error_of(body) == "");
  const auto calls = standin::usage().calls - calls_before;
  REQUIRE(left() == before);
  REQUIRE(calls > 10);
  std::uint64_t failed = 0;
  for (std::uint64_t n = 1; n <= calls; ++n) {
    CAPTURE(n);
    standin::fail_call(n, cudaErrorIllegalAddress, sticky);
    const std::string error = error_of(body);
    standin::fail_no_call();
    device_is_stuck = false;
    failed += error != "";
    CAPTURE(error);
    CHECK(error.find('\n') == std::string::npos);
    if (error != "")
      CHECK((contains(error, "illegal memory access") || contains(error, "no GPU can be used") ||
             contains(error, "cuBLAS") || contains(error, "found no GPU")));
    if (frees) CHECK(left() == before);
  }
  // Only calls that free something may fail without an error.
  CHECK(failed * 2 > calls);
}

void compute() {
  using namespace autograd;
  collectives::cuda::choose_device(0);
  Tensor x = Tensor::full({4, 8}, 0.5, DType::fp32, Device::cuda);
  Tensor w = Tensor::full({6, 8}, 0.25, DType::fp32, Device::cuda);
  w.set_requires_grad(true);
  const Tensor loss = sum(silu(linear(x, w)));
  backward(loss);
  require(loss.item() > 0, "expected a positive loss, got {}", loss.item());
  require(w.grad().to(Device::cpu).elements() == 48, "the gradient has another size");
}

void all_reduce_on_one_gpu() {
  const auto world = collectives::cuda::make_one_gpu_world(1, Seconds(20));
  collectives::ProcessGroup group(collectives::cuda::make_one_gpu_backend(world, 0));
  collectives::cuda::DeviceBuffer buffer(4000);
  const std::vector<float> ones(1000, 1.0f);
  buffer.copy_from(ones.data(), 4000);
  for (const char* algorithm : {"ring", "one_shot"}) {
    group.set_algorithms(collectives::AlgorithmSelection(std::string("all_reduce=") + algorithm));
    group.all_reduce({buffer.data(), 1000, collectives::DataType::fp32});
  }
  std::vector<float> seen(1000);
  buffer.copy_to(seen.data(), 4000);
  require(seen == ones, "wrong sums");
}

void all_reduce_over_ipc() {
  collectives::ProcessGroup group(collectives::cuda::make_cuda_ipc_backend(
      rank_info_of(0, 1, free_port()), {.timeout = Seconds(20), .area_bytes = 1 << 20}));
  collectives::cuda::DeviceBuffer buffer(4000);
  group.all_reduce({buffer.data(), 1000, collectives::DataType::fp32});
}

}  // namespace

TEST_CASE("a failing call ends tensors on a GPU in one sentence without a leak") {
  check_every_failure(compute, false, true);
}
TEST_CASE("a failing call ends ranks that share a GPU in one sentence without a leak") {
  check_every_failure(all_reduce_on_one_gpu, false, true);
}
TEST_CASE("a failing call ends cuda_ipc in one sentence") {
  check_every_failure(all_reduce_over_ipc, false, false);
}
TEST_CASE("an error that stays, as after an illegal access, ends everything in one sentence") {
  check_every_failure(compute, true, false);
  check_every_failure(all_reduce_on_one_gpu, true, false);
  check_every_failure(all_reduce_over_ipc, true, false);
}
