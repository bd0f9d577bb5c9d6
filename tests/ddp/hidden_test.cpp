// Overlap, proved by the clock: behind a link as slow as computation, overlap and buckets hide most
// of the time that flat exposes. Computation is a sleep, so the load of the machine matters little.
// overlap_test.cpp proves the same by the order of events.
#include <chrono>
#include <memory>
#include <thread>

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "ddp/bucketed.hpp"
#include "ddp/flat.hpp"
#include "ddp/naive.hpp"
#include "ddp/overlap.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::autograd;
using ringside::collectives::ProcessGroup;

namespace {

constexpr int layers = 5;
constexpr int width = 160;  // 102 kB of gradients in each layer: 16 ms at 50 Mbps between two ranks
constexpr std::chrono::milliseconds compute{20};  // the backward of a layer

struct SlowNet : Module {
  SlowNet() {
    for (int i = 0; i < layers; ++i) {
      linears.push_back(std::make_unique<Linear>(width, width, false, Init{1, std::to_string(i)}));
      register_module(std::to_string(i), *linears.back());
    }
  }
  Tensor forward(Tensor x) const {
    for (int i = 0; i < layers; ++i) {
      x = linears[static_cast<std::size_t>(i)]->forward(x);
      if (i < layers - 1)
        x.register_hook([](const Tensor&) { std::this_thread::sleep_for(compute); });
    }
    return x;
  }
  std::vector<std::unique_ptr<Linear>> linears;
};

// The time in a step that this rank waits for communication, in seconds: the least of six steps.
template <class Strategy, class... More>
double exposed_seconds(ProcessGroup& group, More... more) {
  const SlowNet net;
  Strategy parallel(net, group, more...);
  double least = 1e9;
  for (int i = 0; i < 6; ++i) {
    group.barrier();
    const double before = group.times().blocked;
    backward(sum(net.forward(Tensor::full({2, width}, 1.0))));
    parallel.finish();
    least = std::min(least, group.times().blocked - before);
  }
  return least;
}

}  // namespace

TEST_CASE("behind a slow link overlap and buckets hide more than half of what flat exposes") {
  collectives::GroupOptions options;
  options.link = collectives::parse_link("50Mbps,50us");
  tests::on_every_transport(
      2,
      [](ProcessGroup& group) {
        const double naive = exposed_seconds<ddp::Naive>(group),
                     flat = exposed_seconds<ddp::Flat>(group),
                     overlap = exposed_seconds<ddp::Overlap>(group),
                     bucketed = exposed_seconds<ddp::Bucketed>(group, 0.11),
                     one_bucket = exposed_seconds<ddp::Bucketed>(group, 100.0);
        const auto all = fmt::format(
            "exposed: naive {:.3f} s, flat {:.3f} s, overlap {:.3f} s, bucketed {:.3f} s, in one "
            "bucket {:.3f} s",
            naive, flat, overlap, bucketed, one_bucket);
        // 5 x 102 kB at 50 Mbps take 82 ms.
        require(flat >= 0.08 && naive >= 0.08, "the link is not slow: {}", all);
        require(overlap < flat / 2, "{}", all);
        require(bucketed < flat / 2, "{}", all);
        require(one_bucket >= 0.75 * flat, "a bucket that holds everything cannot hide: {}", all);
      },
      options);
}
