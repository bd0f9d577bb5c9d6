// A group with two backends: which of them carries out a call. The "device" here is a part of the
// host's memory.
#include "collectives/calls/host_and_device.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <thread>

#include "collectives/bootstrap/connect.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

// Forwards all calls to another backend and records them.
class Witness final : public Backend {
 public:
  Witness(std::unique_ptr<Backend> backend, std::vector<Collective>& seen, const bool& is_broken)
      : backend_(std::move(backend)), seen_(seen), is_broken_(is_broken) {}
  int rank() const override { return backend_->rank(); }
  int size() const override { return backend_->size(); }
  std::string name() const override { return backend_->name(); }
  Traffic traffic() const override { return backend_->traffic(); }
  void abort(const std::string& cause) noexcept override { backend_->abort(cause); }
  void interrupt(const std::string& cause) noexcept override { backend_->interrupt(cause); }
  void run(const Call& call, const void* input, void* output, const BlockBegins& begins) override {
    require(!is_broken_, "the device is broken");
    seen_.push_back(call.collective);
    backend_->run(call, input, output, begins);
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::vector<Collective>& seen_;
  const bool& is_broken_;
};

struct Leaves {
  explicit Leaves(std::atomic<int>& left) : left_(left) {}
  ~Leaves() { --left_; }
  std::atomic<int>& left_;
};

struct Sides {
  std::vector<float> on_host = std::vector<float>(60), on_device = std::vector<float>(60);
  std::vector<Collective> host_saw, device_saw;
  bool host_is_broken = false, device_is_broken = false;

  bool is_device(const void* address) const {
    const auto* const at = static_cast<const float*>(address);
    return !std::less<>()(at, on_device.data()) &&
           std::less<>()(at, on_device.data() + on_device.size());
  }
};

std::vector<std::string> run_on_host_and_device(
    int size, const std::function<void(ProcessGroup&, Sides&)>& body,
    Seconds timeout = Seconds(20)) {
  const auto host_world = make_threads_world(size), device_world = make_threads_world(size);
  return on_threads(size, [&](int rank) {
    ExecutorOptions options;
    options.timeout = timeout;
    Sides sides;
    const auto witness = [&](const auto& world, std::vector<Collective>& seen,
                             const bool& is_broken) {
      return std::make_unique<Witness>(make_schedule_backend(connect_threads(world, rank), options),
                                       seen, is_broken);
    };
    ProcessGroup group(make_host_and_device_backend(
        witness(host_world, sides.host_saw, sides.host_is_broken),
        witness(device_world, sides.device_saw, sides.device_is_broken),
        [&](const void* address) { return sides.is_device(address); }));
    body(group, sides);
  });
}

}  // namespace

TEST_CASE(
    "host and device: a call goes to the backend of its memory and gives the sum of all ranks") {
  using enum Collective;
  for (const int size : {1, 2, 3, 4})
    for (const auto& outcome :
         run_on_host_and_device(size, [size](ProcessGroup&group, Sides&sides) {
           std::fill(sides.on_host.begin(), sides.on_host.end(),
                     1.0f + static_cast<float>(group.rank()));
           sides.on_device = sides.on_host;
           group.all_reduce(std::span(sides.on_host));
           group.all_reduce_async(std::span(sides.on_device), ReduceOp::avg).wait();
           const auto sum = static_cast<float>(size * (size + 1) / 2);
           require(
               sides.on_host[59] == sum && sides.on_device[59] == sum / static_cast<float>(size),
               "{} and {}", sides.on_host[59], sides.on_device[59]);
           group.barrier();
           group.broadcast(std::span(sides.on_device), size - 1);
           group.all_reduce(std::span<float>());
           require(sides.host_saw == std::vector{all_reduce, barrier, all_reduce} &&
                       sides.device_saw == std::vector{all_reduce, broadcast},
                   "the host's backend saw {} calls, the device's {}", sides.host_saw.size(),
                   sides.device_saw.size());
         }))
      CHECK(outcome == "");
}

TEST_CASE("host and device: ranks with an empty block use the same backend as the others") {
  for (const auto& outcome : run_on_host_and_device(4, [](ProcessGroup&group, Sides&sides) {
         const std::span whole(sides.on_device.data(), 3);
         std::vector<float> nothing;  // the last rank's block is empty
         const bool has_block = group.rank() < 3;
         std::iota(whole.begin(), whole.end(), 1.0f);
         const auto block =
             has_block ? std::span(sides.on_device.data() + 10, 1) : std::span(nothing);
         group.reduce_scatter(std::span(whole), block);
         group.all_gather(std::span(block), whole);
         require(whole[0] == 4 && whole[1] == 8 && whole[2] == 12 && sides.host_saw.empty(),
                 "{} {} {}", whole[0], whole[1], whole[2]);
       }))
    CHECK(outcome == "");
}

TEST_CASE(
    "host and device: a failure on the device ends the calls of other ranks on the host, with its "
    "cause") {
  std::atomic<int> others = 2;
  const auto outcomes = run_on_host_and_device(3, [&](ProcessGroup& group, Sides& sides) {
    if (group.rank() != 1) {
      const Leaves leaves(others);
      return group.all_reduce(std::span(sides.on_host));
    }
    sides.device_is_broken = true;
    try {
      group.all_reduce(std::span(sides.on_device));
    } catch (const Error&) {
      // Stay until the others have ended, so that it is not this rank's exit that ends them.
      while (others > 0) std::this_thread::yield();
      throw;
    }
  });
  for (const auto& outcome : outcomes)
    CHECK(outcome.find("the device is broken") != std::string::npos);
}

TEST_CASE("host and device: backends of different ranks are an error") {
  const auto one = make_threads_world(1), two = make_threads_world(2);
  CHECK_THROWS_WITH_AS(
      make_host_and_device_backend(make_schedule_backend(connect_threads(one, 0)),
                                   make_schedule_backend(connect_threads(two, 1)),
                                   [](const void*) { return false; }),
      "a backend for host and device: expected the same rank and size of both, got rank 0 of 1 "
      "over threads and rank 1 of 2 over threads",
      Error);
}

TEST_CASE(
    "host and device: a group can still be used after the device of another rank was rejected") {
  ProcessGroup group(make_schedule_backend(connect_threads(make_threads_world(1), 0)));
  const auto two = make_threads_world(2);
  const auto of_rank_1 = [&](ProcessGroup&) {
    return make_schedule_backend(connect_threads(two, 1));
  };
  const auto is_device_memory = [](const void*) { return false; };
  CHECK_THROWS_AS(group.use_device({{}, of_rank_1, is_device_memory}), Error);
  std::vector<float> data{3};
  group.all_reduce(std::span(data));
  CHECK(data[0] == 3);
  CHECK(group.backend_name() == "threads");
}

TEST_CASE("host and device: sub-groups have a device backend and the fence of their group") {
  const auto host = make_threads_world(4), device = make_threads_world(4);
  const std::shared_ptr<ThreadsWorld> halves[] = {make_threads_world(2), make_threads_world(2)};
  const auto outcomes = on_threads(4, [&](int rank) {
    Sides sides;
    int fences = 0;
    ProcessGroup group(make_schedule_backend(connect_threads(host, rank)));
    const auto device_backend = [&](ProcessGroup& of) {
      const auto& world = of.size() == 4 ? device : halves[rank / 2];
      return std::make_unique<Witness>(make_schedule_backend(connect_threads(world, of.rank())),
                                       sides.device_saw, sides.device_is_broken);
    };
    const auto is_device_memory = [&](const void* at) { return sides.is_device(at); };
    const auto fence = [&] {
      ++fences;
      return [] {};
    };
    group.use_device({fence, device_backend, is_device_memory});

    ProcessGroup half = group.split(rank / 2);
    require(half.backend_name() == "threads+threads", "the backend is {}", half.backend_name());
    sides.device_saw.clear();
    fences = 0;
    std::fill(sides.on_device.begin(), sides.on_device.end(), 1.0f);
    half.all_reduce(std::span(sides.on_device));
    require(sides.on_device[59] == 2, "the sum is {}", sides.on_device[59]);
    require(sides.device_saw == std::vector{Collective::all_reduce}, "the device saw {} calls",
            sides.device_saw.size());
    require(fences == 1, "{} fences for one call", fences);
  });
  for (const auto& outcome : outcomes) CHECK(outcome == "");
}
