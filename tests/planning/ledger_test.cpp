// What a rank keeps and sends by the account, beside the counters of memory_use() and of the wire.
#include <algorithm>
#include <cmath>
#include <memory>

#include "autograd/optim/adamw.hpp"
#include "ddp/replicate.hpp"
#include "planning/account.hpp"
#include "tests/zero/llama.hpp"
#include "tests/zero/stages.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

planning::Plan plan_of(int stage, int ranks) {
  return {.mesh = parallel::MeshShape().with(parallel::Axis::dp, ranks),
          .zero = stage,
          .types = {.parameters = 4, .gradients = 4, .activations = 4}};
}

// Trains two steps on `size` ranks and compares every rank's memory with the account. Shards are
// padded to cache lines, and AdamW counts the steps of each parameter: less than 1 %.
template <class Strategy>
void agrees(const transformer::Config& config, int stage, int size) {
  const planning::RankMemory account =
      memory_of_rank(planning::model_from(config, ""), plan_of(stage, size), 0);
  collectives::run_threads(size, [&](ProcessGroup& group) {
    transformer::Model model(config);
    Strategy strategy(model, group);
    const auto optimizer =
        strategy.make_optimizer({{ddp::trained_parameters(model), 0.01, 0}}, make_adamw);
    for (int step = 0; step < 2; ++step) {
      backward(loss_of(model, group.rank()));
      strategy.finish();
      optimizer->step();
      for (const char* kind : {"parameters", "gradients", "optimizer state"}) {
        const auto row = std::ranges::find(account.rows, kind, &planning::MemoryRow::kind);
        const auto seen = static_cast<double>(memory_use(row->counted).current);
        require(std::abs(seen - row->bytes) < 0.01 * seen,
                "stage {}, rank {} of {}: {} take {} bytes, {} in the account", stage, group.rank(),
                size, kind, seen, row->bytes);
      }
      optimizer->zero_grad();
    }
  });
}

void agrees_at_every_stage(const transformer::Config& config, int size) {
  agrees<Replicated<ddp::Bucketed>>(config, 0, size);
  agrees<zero::Zero1>(config, 1, size);
  agrees<zero::Zero2>(config, 2, size);
  agrees<zero::Zero3>(config, 3, size);
}

}  // namespace

TEST_CASE("tiny on 2, 3 and 4 ranks keeps what the account says") {
  for (const int size : {2, 3, 4}) agrees_at_every_stage(transformer::named_config("tiny"), size);
}

TEST_CASE("lab on 2 ranks keeps what the account says") {
  agrees_at_every_stage(transformer::named_config("lab"), 2);
}

TEST_CASE("a tied head and shared key heads, on 3 ranks, keep what the account says") {
  transformer::Config config = small_llama(true);
  config.d_model = 64, config.d_ff = 172, config.vocabulary = 257;
  agrees_at_every_stage(config, 3);
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
    planning::Plan plan = plan_of(stage, size);
    plan.micro_batches = 2, plan.sequence = 8;
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
              strategy.make_optimizer({{ddp::trained_parameters(model), 0.01, 0}}, make_adamw);
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
    sends_what_the_account_says<zero::Zero1>(1, tied);
    sends_what_the_account_says<zero::Zero2>(2, tied);
    sends_what_the_account_says<zero::Zero3>(3, tied);
  }
}
