// The memory of a rank at three moments, by the counters of memory_use(): after construction,
// before the optimizer's step, and after it.
//
// In bytes, for n fp32 parameters on p ranks with AdamW (Rajbhandari et al., SC 2020, figure 1,
// with 4 + 4 + 8 bytes instead of 2 + 2 + 12):
//
//                     parameters    gradients    optimizer state
//     data parallel   4 n           4 n          8 n
//     stage 1         4 n           4 n          8 n / p
//     stage 2         4 n           4 n / p      8 n / p
//     stage 3         4 n / p       4 n / p      8 n / p
#include "autograd/optim/adamw.hpp"
#include "tests/zero/llama.hpp"
#include "tests/zero/stages.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

// Large enough that the padding of shards and the step counts of AdamW are less than 2 %.
transformer::Config llama() {
  transformer::Config config = small_llama();
  config.d_model = 64, config.d_ff = 172;
  return config;
}

// What one rank keeps, as fractions of the whole.
struct Fractions {
  double parameters, gradients, state;
};

void must_hold(const char* moment, double n, const Fractions& kept) {
  const auto near = [&](MemoryKind kind, double expected) {
    const auto seen = static_cast<double>(memory_use(kind).current);
    require(std::abs(seen - expected) <= 0.02 * expected, "{}: {} take {} bytes instead of {}",
            moment, name_of(kind), seen, expected);
  };
  near(MemoryKind::parameters, 4 * n * kept.parameters);
  near(MemoryKind::gradients, 4 * n * kept.gradients);
  near(MemoryKind::optimizer_state, 8 * n * kept.state);
  require(memory_use(MemoryKind::communication).current == 0, "{}: {} bytes for communication",
          moment, memory_use(MemoryKind::communication).current);
  const auto all =
      static_cast<double>(memory_use().current - memory_use(MemoryKind::activations).current);
  const double expected = 4 * n * (kept.parameters + kept.gradients + 2 * kept.state);
  require(std::abs(all - expected) <= 0.02 * all, "{}: {} bytes in all instead of {}", moment, all,
          expected);
}

template <class Strategy>
void holds(const std::function<Fractions(double p)>& formula) {
  for (const int size : {2, 3, 4}) {
    collectives::run_threads(size, [&](ProcessGroup& group) {
      transformer::Model model(llama());
      const auto n = static_cast<double>(transformer::parameter_count(model.config()));
      const Fractions kept = formula(group.size());
      Strategy strategy(model, group);
      const auto optimizer =
          strategy.make_optimizer({{ddp::trained_parameters(model), 0.01, 0}}, make_adamw);
      must_hold("after construction", n, kept);
      for (int step = 0; step < 2; ++step) {
        backward(loss_of(model, group.rank()));
        strategy.finish();
        must_hold("before the step", n, kept);
        optimizer->step();
        must_hold("after the step", n, kept);
        optimizer->zero_grad();
      }
    });
  }
}

}  // namespace

TEST_CASE("data parallel holds everything on every rank") {
  holds<Replicated<ddp::Bucketed>>([](double) { return Fractions{1, 1, 1}; });
}

TEST_CASE("stage 1 holds 1/p of the optimizer state") {
  holds<zero::Zero1>([](double p) { return Fractions{1, 1, 1 / p}; });
}

TEST_CASE("stage 2 holds 1/p of the gradients too") {
  holds<zero::Zero2>([](double p) { return Fractions{1, 1 / p, 1 / p}; });
}

TEST_CASE("stage 3 holds 1/p of the parameters too") {
  holds<zero::Zero3>([](double p) { return Fractions{1 / p, 1 / p, 1 / p}; });
}

TEST_CASE(
    "in backward the gradients of stage 2 take two buckets under way, one that is filled, and one "
    "gradient") {
  collectives::run_threads(2, [](ProcessGroup& group) {
    transformer::Model model(llama());
    zero::Zero2 stage(model, group, 0.05);
    const auto& plan = stage.plan();
    std::int64_t largest = 0, shards = plan.padded_bytes() / group.size();
    for (std::size_t b = 0; b < plan.buckets().size(); ++b)
      largest = std::max(largest, 4 * plan.padded_elements(b));
    // The first backward allocates memory that ops keep.
    backward(loss_of(model, group.rank()));
    stage.finish();
    reset_peak_memory();
    const zero::GradientShards& gradients = stage.gradients();
    require(gradients.in_memory() == 0, "{} buckets are in memory", gradients.in_memory());
    backward(loss_of(model, group.rank()));
    require(gradients.in_memory() <= gradients.most_under_way, "{} buckets are in memory",
            gradients.in_memory());
    stage.finish();
    const auto peak = memory_use(MemoryKind::gradients).peak;
    // Under way; being filled; and backward's own gradient, as large as a bucket at most.
    const auto buckets = static_cast<std::int64_t>(gradients.most_under_way) + 2;
    require(peak <= shards + buckets * largest,
            "the peak is {} bytes, with {} for a bucket and {} for the shards", peak, largest,
            shards);
    require(peak < plan.padded_bytes(), "the peak is {} bytes, but all gradients take only {}",
            peak, plan.padded_bytes());
  });
}

TEST_CASE("in a step the parameters of stage 3 take two neighboring units beside the shards") {
  // The largest units are the blocks, or the embedding and the head, which are no neighbors.
  for (const int vocabulary : {256, 2048}) {
    collectives::run_threads(2, [vocabulary](ProcessGroup& group) {
      transformer::Config config = llama();
      config.vocabulary = vocabulary;
      transformer::Model model(config);
      zero::Zero3 stage(model, group);
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
              "the peak is {} bytes; the units take {}", peak, sizes);
    });
  }
}
