// The memory of a training run by the account, beside the ledger.
#include "planning/memory.hpp"

#include <doctest/doctest.h>

#include "autograd/tensor/storage.hpp"
#include "tests/sample.hpp"
#include "training/strategies/single_process.hpp"
#include "training/trainer.hpp"

using namespace ringside;
using namespace ringside::training;
using namespace ringside::transformer;
using autograd::DType;
using autograd::MemoryKind;
using planning::RankMemory;

namespace {

// The estimate for a rank, with a stage of ZeRO.
RankMemory needed(const Config& config, const TrainerOptions& options, DType dtype, int ranks = 1,
                  planning::Plan plan = {}) {
  plan.mesh = planning::planned_mesh("dp=" + std::to_string(ranks));
  plan.micro_batches = options.accumulate;
  plan.micro_batch = options.batch / ranks / options.accumulate;
  plan.sequence = options.sequence;
  plan.types = planning::types_of(dtype);
  plan.types.adamw = options.optimizer == OptimizerKind::adamw;
  plan.recompute = options.recompute;
  return memory_of_rank(planning::model_from(config, ""), plan, 0);
}

// The peak memory of all tensors during two steps of training with these options.
double counted(const Config& config, const TrainerOptions& options, DType dtype,
               autograd::Device device = autograd::Device::cpu) {
  Bytes text(20'000);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i * i % 251);
  const Corpus corpus(text);
  const double before = static_cast<double>(autograd::memory_use().current);
  autograd::reset_peak_memory();
  {
    Model model(config, dtype, device);
    SingleProcess strategy;
    Trainer trainer(model, corpus, strategy, options);
    trainer.step();
    trainer.step();
  }
  return static_cast<double>(autograd::memory_use().peak) - before;
}

Config sized(std::int64_t vocabulary, std::int64_t d, std::int64_t layers, std::int64_t d_ff) {
  Config config;
  config.vocabulary = vocabulary;
  config.d_model = d;
  config.layers = layers;
  config.heads = 8;
  config.kv_heads = 4;
  config.d_ff = d_ff;
  config.sequence = 64;
  return config;
}

}  // namespace

TEST_CASE("the estimate is the memory of training or a little more") {
  const Config configs[] = {sized(256, 64, 6, 160), sized(4000, 64, 2, 160),
                            sized(256, 128, 2, 700)};
  for (const bool checkpointed : {false, true})
    for (const Config& config : configs) {
      CAPTURE(checkpointed);
      for (const std::int64_t batch : {1, 16}) {
        for (const auto kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
          TrainerOptions options;
          options.recompute = {checkpointed ? 1 : 0};
          options.steps = 2;
          options.batch = batch;
          options.sequence = 64;
          options.optimizer = kind;
          CAPTURE(config.vocabulary);
          CAPTURE(config.d_ff);
          CAPTURE(batch);
          const double estimate = needed(config, options, DType::fp32).total(),
                       seen = counted(config, options, DType::fp32);
          CHECK(estimate > 0.97 * seen);
          CHECK(estimate < 1.6 * seen);
        }
      }
    }
}

TEST_CASE("ranks and micro-batches divide the activations, a strategy scales what it holds") {
  TrainerOptions options;
  options.batch = 16;
  const Config config = named_config("lab");
  const RankMemory one = needed(config, options, DType::fp32),
                   four = needed(config, options, DType::fp32, 4, {.gradient_copies = 2});
  const auto all = static_cast<double>(parameter_count(config)) * 4;
  CHECK(one.of(MemoryKind::parameters) == all);
  CHECK(needed(config, options, DType::fp64).of(MemoryKind::parameters) == 2 * all);
  CHECK(four.of(MemoryKind::parameters) == all);
  CHECK(four.of(MemoryKind::gradients) == 2 * all);
  CHECK(four.of(MemoryKind::optimizer_state) == 2 * all);
  // The gradient of the head's matrix, and blocks of logits, have a fixed size.
  const double of_head = 4.0 * 10000 * 512;
  const double of_four = four.of(MemoryKind::activations), of_one = one.of(MemoryKind::activations);
  CHECK(of_four - of_head == doctest::Approx((of_one - of_head) / 4).epsilon(0.2));
  options.accumulate = 4;
  CHECK(needed(config, options, DType::fp32).of(MemoryKind::activations) == of_four);
}

TEST_CASE("a strategy that shards needs its parts, but at first the whole model") {
  TrainerOptions options;
  options.batch = 1;
  options.sequence = 1;
  const Config config = named_config("lab");
  const auto all = static_cast<double>(parameter_count(config)) * 4;
  // Two units in bytes: the head with the last norm, which are as large as the embedding; and a
  // block, which has four square matrices, three of the feed-forward part and two norms.
  const double units = 4.0 * (10000 * 512 + 512 + 4 * 512 * 512 + 3 * 512 * 1344 + 2 * 512);
  options.batch = 4;
  const RankMemory part = needed(config, options, DType::fp32, 4, {.zero = 3});
  CHECK(part.of(MemoryKind::parameters) == all / 4 + units);
  CHECK(part.of(MemoryKind::gradients) == all / 4 + 2 * units);
  CHECK(part.of(MemoryKind::optimizer_state) == doctest::Approx(all / 2).epsilon(1e-4));
  // A wide model of few blocks: its parameters alone are more than what is left of them.
  options.batch = 100'000;
  const Config wide = sized(100, 8, 100'000, 8);
  const RankMemory spread = needed(wide, options, DType::fp32, 100'000, {.zero = 3});
  CHECK(spread.at_start == static_cast<double>(parameter_count(wide)) * 4);
}

// Groups of K of 16 blocks keep 16 / K inputs and K blocks: the least memory is between the ends,
// at the size that the plan predicts; groups within groups keep less than any. The bits are the
// same.
TEST_CASE("groups of recomputed blocks: memory by the plan, and the best group as predicted") {
  const Config config = sized(256, 64, 16, 32);
  Bytes text(20'000);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i * i % 251);
  const Corpus corpus(text);
  TrainerOptions options;
  options.steps = 2;
  options.batch = 32;
  options.sequence = 64;
  options.recompute = {1};
  std::vector<float> first;
  const auto measured = [&](const transformer::RecomputeGroups& groups) {
    options.recompute = groups;
    Model model(config, DType::fp32);
    SingleProcess strategy;
    Trainer trainer(model, corpus, strategy, options);
    trainer.step();
    autograd::reset_peak_memory();
    trainer.step();
    std::vector<float> parameters;
    for (const auto& each : model.named_parameters())
      for (const float number : each.tensor.values<float>()) parameters.push_back(number);
    if (first.empty()) first = parameters;
    CHECK(parameters == first);
    return static_cast<double>(autograd::memory_use(MemoryKind::activations).peak);
  };
  const auto predicted = [&](const transformer::RecomputeGroups& groups) {
    options.recompute = groups;
    return needed(config, options, DType::fp32).of(MemoryKind::activations);
  };
  double least_seen = 1e300, least_predicted = 1e300;
  std::int64_t best_seen = 0, best_predicted = 0;
  for (const std::int64_t size : {1, 2, 4, 8, 16}) {
    const double seen = measured({size, 0}), expected = predicted({size, 0});
    CAPTURE(size);
    CHECK(seen == doctest::Approx(expected).epsilon(0.06));
    if (seen < least_seen) least_seen = seen, best_seen = size;
    if (expected < least_predicted) least_predicted = expected, best_predicted = size;
  }
  CHECK(best_seen == best_predicted);
  for (const transformer::RecomputeGroups& groups :
       {transformer::RecomputeGroups{4, 1}, {8, 2}, {8, 1}}) {
    CAPTURE(groups.blocks);
    CAPTURE(groups.inner);
    CHECK(measured(groups) == doctest::Approx(predicted(groups)).epsilon(0.06));
  }
}

TEST_CASE("selective recomputation is a text of its own, the others are those of the model") {
  for (const std::string text : {"none", "selective", "full", "every=4", "nested=8,2"})
    CHECK(planning::text_of(planning::recomputation_from(text)) == text);
}

TEST_CASE("checkpointed activations take a fraction of the memory and change no bit") {
  const Config config = sized(256, 64, 8, 160);
  Bytes text(20'000);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i * i % 251);
  const Corpus corpus(text);
  const auto parameters_after = [&](bool checkpointed, std::int64_t& peak) {
    Model model(config);
    SingleProcess strategy;
    TrainerOptions options;
    options.steps = 3;
    options.batch = 16;
    options.sequence = 64;
    options.recompute = {checkpointed ? 1 : 0};
    Trainer trainer(model, corpus, strategy, options);
    trainer.step();
    const auto before = autograd::memory_use().current;
    autograd::reset_peak_memory();
    trainer.run();
    peak = autograd::memory_use().peak - before;
    std::vector<float> all;
    for (const auto& parameter : model.parameters()) {
      const auto values = parameter.values<float>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  std::int64_t plain_peak = 0, checkpointed_peak = 0;
  const auto plain = parameters_after(false, plain_peak),
             checkpointed = parameters_after(true, checkpointed_peak);
  CHECK((plain == checkpointed));
  CHECK(checkpointed_peak * 3 < plain_peak);
}

TEST_CASE("the estimate holds for bf16, whose activations take about half") {
  const Config config = sized(256, 64, 6, 160);
  TrainerOptions options;
  options.steps = 2;
  options.batch = 16;
  options.sequence = 64;
  const RankMemory fp32 = needed(config, options, DType::fp32),
                   bf16 = needed(config, options, DType::bf16);
  const auto share = [&](MemoryKind kind) { return bf16.of(kind) / fp32.of(kind); };
  CHECK(share(MemoryKind::activations) < 0.65);
  CHECK(share(MemoryKind::parameters) == 0.5);
  CHECK(share(MemoryKind::gradients) == 0.5);
  // fp32 masters besides the two moments
  CHECK(share(MemoryKind::optimizer_state) == doctest::Approx(1.5).epsilon(1e-3));
  const double seen = counted(config, options, DType::bf16);
  CHECK(bf16.total() > 0.9 * seen);
  CHECK(bf16.total() < 1.35 * seen);
}

TEST_CASE("the estimate holds on a device, which has more rows of logits at a time") {
  testing::Sample sample;
  for (const Config& config : {sized(256, 64, 6, 160), sized(20000, 64, 2, 160)})
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      if (!sample.takes()) continue;
      TrainerOptions options;
      options.steps = 2;
      options.batch = 8;
      options.sequence = 64;
      CAPTURE(config.vocabulary);
      CAPTURE(autograd::name_of(dtype));
      const auto device = autograd::Device::emulated;
      const RankMemory here = needed(config, options, dtype),
                       there = needed(config, options, dtype, 1, {.device = device});
      // 512 tokens; on the CPU 342 rows of 20,000 logits are 32 MiB.
      if (config.vocabulary == 20000)
        CHECK(there.of(MemoryKind::activations) > here.of(MemoryKind::activations));
      const double seen = counted(config, options, dtype, device);
      // The emulated device widens the factors of a product in bf16, which a GPU does not.
      if (dtype == DType::fp32) CHECK(there.total() > 0.97 * seen);
      CHECK(there.total() < 1.35 * seen);
    }
}

TEST_CASE("after the first steps, training allocates no memory from the system") {
  const Config config = sized(4000, 64, 3, 160);
  Bytes text(20'000);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i * i % 251);
  const Corpus corpus(text);
  testing::Sample sample;
  for (const DType dtype : {DType::fp32, DType::fp64, DType::bf16}) {
    for (const bool checkpointed : {false, true}) {
      for (const int accumulate : {1, 4}) {
        if (!sample.takes()) continue;
        CAPTURE(autograd::name_of(dtype));
        CAPTURE(checkpointed);
        CAPTURE(accumulate);
        autograd::release_cached_memory();
        const auto before = autograd::system_allocations();
        Model model(config, dtype);
        SingleProcess strategy;
        TrainerOptions options;
        options.steps = 6;
        options.batch = 16;
        options.sequence = 64;
        options.accumulate = accumulate;
        options.recompute = {checkpointed ? 1 : 0};
        Trainer trainer(model, corpus, strategy, options);
        trainer.run(2);
        const auto steady = autograd::system_allocations();
        CHECK(steady > before + 20);  // allocations are counted
        trainer.run();
        CHECK(autograd::system_allocations() == steady);
      }
    }
  }
}
