// The memory of training: what recomputation saves, and that a step allocates nothing anew.
#include <utility>

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

namespace {

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

// Groups of K of 16 blocks keep 16 / K inputs and K blocks; groups within groups keep less than
// any. The bits are the same.
TEST_CASE("groups of recomputed blocks take the memory that the planner predicts") {
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
  // As the planner predicts them, which tests/python/planning_test.py holds to the same figures.
  const std::pair<transformer::RecomputeGroups, double> predicted[] = {
      {{1, 0}, 14499840},  {{2, 0}, 14843904}, {{4, 0}, 21823488}, {{8, 0}, 38928384},
      {{16, 0}, 74711040}, {{4, 1}, 10305536}, {{8, 2}, 13795328}, {{8, 1}, 11354112}};
  for (const auto& [groups, bytes] : predicted) {
    CAPTURE(groups.blocks);
    CAPTURE(groups.inner);
    CHECK(measured(groups) == doctest::Approx(bytes).epsilon(0.06));
  }
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
