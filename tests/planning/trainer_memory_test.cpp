// What the trainer keeps, to the byte: predicted beside the counters of memory_use().
#include "planning/trainer_memory.hpp"

#include <cmath>
#include <memory>

#include "autograd/optim/adamw.hpp"
#include "parallel/replicate.hpp"
#include "planning/account.hpp"
#include "planning/formulas/activations.hpp"
#include "planning/formulas/state.hpp"
#include "tests/zero/llama.hpp"
#include "tests/zero/stages.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;
using planning::trainer_memory;
using planning::TrainerMemory;

namespace {

TrainerMemory counted() {
  return {memory_use(MemoryKind::parameters).current, memory_use(MemoryKind::gradients).current,
          memory_use(MemoryKind::optimizer_state).current};
}

// Trains two steps on `size` ranks and compares every rank's memory with the prediction.
template <class Strategy>
void agrees(const transformer::Config& config, int stage, int size) {
  collectives::run_threads(size, [&](ProcessGroup& group) {
    transformer::Model model(config);
    Strategy strategy(model, group);
    const auto optimizer =
        strategy.make_optimizer({{parallel::trained_parameters(model), 0.01, 0}}, make_adamw);
    for (int step = 0; step < 2; ++step) {
      backward(loss_of(model, group.rank()));
      strategy.finish();
      optimizer->step();
      const TrainerMemory seen = counted(), expected = trainer_memory(config, {config.layers},
                                                                      stage, size, group.rank());
      require(seen == expected,
              "stage {}, rank {} of {}: parameters {} for {}, gradients {} for {}, state {} for {}",
              stage, group.rank(), size, seen.parameters, expected.parameters, seen.gradients,
              expected.gradients, seen.optimizer_state, expected.optimizer_state);
      optimizer->zero_grad(false);
    }
  });
}

void agrees_at_every_stage(const transformer::Config& config, int size) {
  agrees<Replicated<ddp::Bucketed>>(config, 0, size);
  agrees<zero::ShardedState>(config, 1, size);
  agrees<zero::ShardedGradients>(config, 2, size);
  agrees<zero::ShardedParameters>(config, 3, size);
}

}  // namespace

TEST_CASE("tiny on 2, 3 and 4 ranks, to the byte") {
  for (const int size : {2, 3, 4}) agrees_at_every_stage(transformer::named_config("tiny"), size);
}

TEST_CASE("lab on 2 ranks, to the byte") {
  agrees_at_every_stage(transformer::named_config("lab"), 2);
}

TEST_CASE("a tied head and shared key heads, on 3 ranks, to the byte") {
  transformer::Config config = small_llama(true);
  config.vocabulary = 257;
  agrees_at_every_stage(config, 3);
}

TEST_CASE("the account and the trainer's memory are the same formulas") {
  for (const char* name : {"tiny", "lab"}) {
    const transformer::Config config = transformer::named_config(name);
    const planning::Model model = planning::find_model(name);
    for (const int ranks : {1, 2, 4}) {
      for (int stage = 0; stage <= 3; ++stage) {
        CAPTURE(name);
        CAPTURE(ranks);
        CAPTURE(stage);
        planning::Plan plan{.micro_batch = 8,
                            .sequence = config.sequence,
                            .zero = stage,
                            .types = {.parameters = 4, .gradients = 4, .activations = 4}};
        if (ranks > 1) plan.mesh = plan.mesh.with(parallel::Axis::dp, ranks);
        const auto account = planning::account(model, plan, planning::find_machine("laptop"));
        const auto bytes_of = [&](const char* kind) {
          double sum = 0;
          for (const auto& row : account.stages.front().rows)
            if (row.kind == kind) sum += row.bytes;
          return sum;
        };
        const double all = static_cast<double>(transformer::parameter_count(config)) * 4;
        CHECK(bytes_of("parameters") ==
              doctest::Approx(stage == 3 ? all / ranks : all).epsilon(1e-12));
        CHECK(bytes_of("gradients") ==
              doctest::Approx(stage >= 2 ? all / ranks : all).epsilon(1e-12));
        CHECK(bytes_of("optimizer state") ==
              doctest::Approx(stage >= 1 ? 2 * all / ranks : 2 * all).epsilon(1e-12));
        // With the padding and the step counts the account is exact.
        const auto exact =
            trainer_memory(config, {config.layers}, ranks == 1 ? 0 : stage, ranks, 0);
        CHECK(bytes_of("parameters") + bytes_of("gradients") + bytes_of("optimizer state") +
                  bytes_of("padding, counters") ==
              static_cast<double>(exact.total()));
        CHECK(bytes_of("padding, counters") < 0.01 * static_cast<double>(exact.total()));
      }
    }
  }
}

namespace {

// What one rank sends in a step of two micro-batches, on the wire and by the account. The padding
// of shards is sent too: less than 1 %.
template <class Strategy>
void sends_what_the_account_says(int stage, bool tied) {
  transformer::Config config = transformer::named_config("tiny");
  config.tied_head = tied;
  collectives::GroupOptions options;
  options.algorithms =
      collectives::AlgorithmSelection("all_reduce=ring,reduce_scatter=ring,all_gather=ring");
  for (const int size : {2, 3, 4}) {
    const planning::Plan plan{.mesh = parallel::MeshShape().with(parallel::Axis::dp, size),
                              .micro_batches = 2,
                              .sequence = 8,
                              .zero = stage,
                              .types = {.parameters = 4, .gradients = 4, .activations = 4}};
    double expected = 0;
    for (const auto& each :
         account(planning::model_from(config, "tiny"), plan, planning::find_machine("laptop"))
             .traffic)
      expected += each.bytes;
    on_every_transport(
        size,
        [&](ProcessGroup& group) {
          transformer::Model model(config);
          Strategy strategy(model, group);
          const auto optimizer =
              strategy.make_optimizer({{parallel::trained_parameters(model), 0.01, 0}}, make_adamw);
          const auto before = group.traffic().payload_bytes_sent;
          {
            const auto accumulate = strategy.no_sync();
            backward(loss_of(model, group.rank()));
          }
          backward(loss_of(model, group.rank()));
          strategy.finish();
          optimizer->step();
          const auto sent = static_cast<double>(group.traffic().payload_bytes_sent - before);
          require(std::abs(sent - expected) < 0.01 * expected,
                  "stage {} on {} ranks: {} bytes sent, {} in the account", stage, size, sent,
                  expected);
        },
        options);
  }
}

}  // namespace

TEST_CASE("the bytes of the account are those on the wire") {
  for (const bool tied : {false, true}) {
    sends_what_the_account_says<zero::ShardedState>(1, tied);
    sends_what_the_account_says<zero::ShardedGradients>(2, tied);
    sends_what_the_account_says<zero::ShardedParameters>(3, tied);
  }
}
