// What is held, by the ledger, at three moments: after everything is made, just before the
// optimizer's step, just after it.
//
// With n parameters of fp32 on p ranks, AdamW, in bytes (Rajbhandari et al., SC 2020, figure 1,
// with 4 + 4 + 8 in place of 2 + 2 + 12):
//
//                     parameters    gradients    optimizer state
//     data parallel   4 n           4 n          8 n
//     stage 1         4 n           4 n          8 n / p
//     stage 2         4 n           4 n / p      8 n / p
//     stage 3         4 n / p       4 n / p      8 n / p
#include "autograd/optim/adamw.hpp"
#include "tests/zero/llama.hpp"
#include "tests/zero/stages.hpp"
#include "zero/optimizer.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

// Large enough that what fills up shards, and the count of steps of each parameter, are less than 2
// %.
transformer::Config llama() {
  transformer::Config config = small_llama();
  config.d_model = 64, config.d_ff = 172;
  return config;
}

struct Shares {
  double parameters, gradients, state;  // of all, on one rank
};

void must_hold(const char* moment, double n, const Shares& shares) {
  const auto near = [&](MemoryKind kind, double wanted) {
    const auto seen = static_cast<double>(memory_use(kind).current);
    require(std::abs(seen - wanted) <= 0.02 * wanted, "{}: {} take {} bytes in place of {}", moment,
            name_of(kind), seen, wanted);
  };
  near(MemoryKind::parameters, 4 * n * shares.parameters);
  near(MemoryKind::gradients, 4 * n * shares.gradients);
  near(MemoryKind::optimizer_state, 8 * n * shares.state);
  require(memory_use(MemoryKind::communication).current == 0, "{}: {} bytes for communication",
          moment, memory_use(MemoryKind::communication).current);
  const auto kept =
      static_cast<double>(memory_use().current - memory_use(MemoryKind::activations).current);
  require(std::abs(kept - 4 * n * (shares.parameters + shares.gradients + 2 * shares.state)) <=
              0.02 * kept,
          "{}: all together {}", moment, kept);
}

struct Ddp : ddp::Bucketed {
  Ddp(Module& net, ProcessGroup& group) : Bucketed(net, group) {}
  std::unique_ptr<Optimizer> make_optimizer(std::vector<ParameterGroup> groups,
                                            const MakeOptimizer& make) {
    return make(std::move(groups));
  }
};

template <class Strategy>
void holds(const std::function<Shares(double p)>& formula) {
  for (const int size : {2, 3, 4}) {
    collectives::run_threads(size, [&](ProcessGroup& group) {
      transformer::Model model(llama());
      const auto n = static_cast<double>(transformer::parameter_count(model.config()));
      const Shares shares = formula(group.size());
      Strategy strategy(model, group);
      const auto optimizer = strategy.make_optimizer(
          {{trained(model), 0.01, 0}}, [](std::vector<ParameterGroup> groups) {
            return std::make_unique<AdamW>(std::move(groups));
          });
      must_hold("after all is made", n, shares);
      for (int step = 0; step < 2; ++step) {
        backward(loss_of(model, group.rank()));
        strategy.finish();
        must_hold("before the step", n, shares);
        optimizer->step();
        must_hold("after the step", n, shares);
        optimizer->zero_grad(false);
      }
    });
  }
}

}  // namespace

TEST_CASE("data parallel holds everything on every rank") {
  holds<Ddp>([](double) { return Shares{1, 1, 1}; });
}

TEST_CASE("stage 1 holds 1/p of the optimizer state") {
  holds<zero::ShardedState>([](double p) { return Shares{1, 1, 1 / p}; });
}

TEST_CASE("stage 2 holds 1/p of the gradients too") {
  holds<zero::ShardedGradients>([](double p) { return Shares{1, 1 / p, 1 / p}; });
}

TEST_CASE("stage 3 holds 1/p of the parameters too") {
  holds<zero::ShardedParameters>([](double p) { return Shares{1 / p, 1 / p, 1 / p}; });
}

TEST_CASE(
    "on the way gradients of stage 2 take no more than the buckets that are open and one that "
    "comes") {
  collectives::run_threads(2, [](ProcessGroup& group) {
    transformer::Model model(llama());
    zero::ShardedGradients stage(model, group, 0.05);
    const auto& plan = stage.plan();
    std::int64_t largest = 0, shards = plan.padded_bytes() / group.size();
    for (std::size_t b = 0; b < plan.buckets().size(); ++b)
      largest = std::max(largest, 4 * plan.padded_elements(b));
    backward(loss_of(
        model,
        group.rank()));  // what backward allocates once (scratch of the ops) is there afterwards
    stage.finish();
    reset_peak_memory();
    require(stage.gradients().open() == 0, "{} buckets are open", stage.gradients().open());
    backward(loss_of(model, group.rank()));
    require(stage.gradients().open() <= zero::GradientShards::most_under_way + 1,
            "{} buckets are open", stage.gradients().open());
    stage.finish();
    const auto peak = memory_use(MemoryKind::gradients).peak;
    const auto buckets = static_cast<std::int64_t>(zero::GradientShards::most_under_way) +
                         2;  // under way, filling, and one gradient on its own
    require(peak <= shards + buckets * largest,
            "{} bytes at the peak, of {} for a bucket and {} for shards", peak, largest, shards);
    require(peak < plan.padded_bytes(), "{} bytes at the peak, and all gradients are {}", peak,
            plan.padded_bytes());
  });
}

TEST_CASE("on the way parameters of stage 3 take two neighbouring units beside the shards") {
  for (const int vocabulary : {256, 2048}) {  // the blocks are the largest units, or the embedding
                                              // and the head, which are no neighbours
    collectives::run_threads(2, [vocabulary](ProcessGroup& group) {
      transformer::Config config = llama();
      config.vocabulary = vocabulary;
      transformer::Model model(config);
      zero::ShardedParameters stage(model, group);
      std::vector<std::int64_t> sizes;  // in the order of backward: head, blocks, embedding
      for (std::size_t b = 0; b < stage.plan().buckets().size(); ++b)
        sizes.push_back(4 * stage.plan().padded_elements(b));
      std::int64_t most = 0;
      for (std::size_t b = 1; b < sizes.size(); ++b) most = std::max(most, sizes[b - 1] + sizes[b]);
      reset_peak_memory();
      backward(loss_of(model, group.rank()));
      stage.finish();
      const auto peak = memory_use(MemoryKind::parameters).peak;
      require(peak == stage.plan().padded_bytes() / group.size() + most,
              "{} bytes at the peak; units: {}", peak, sizes);
    });
  }
}
