#include "transformer/memory.hpp"

#include <doctest/doctest.h>

#include "autograd/tensor/storage.hpp"
#include "transformer/inference/evaluation.hpp"
#include "transformer/inference/generation.hpp"
#include "transformer/single_process.hpp"

using namespace ringside;
using namespace ringside::transformer;
using autograd::DType;

namespace {

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
          options.checkpoint_activations = checkpointed;
          options.steps = 2;
          options.batch = batch;
          options.sequence = 64;
          options.optimizer = kind;
          CAPTURE(config.vocabulary);
          CAPTURE(config.d_ff);
          CAPTURE(batch);
          const double estimate = memory_needed(config, options, DType::fp32, 1).total(),
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
  const MemoryNeed one = memory_needed(config, options, DType::fp32, 1),
                   four = memory_needed(config, options, DType::fp32, 4, Held{.gradients = 2});
  CHECK(one.parameters == static_cast<double>(parameter_count(config)) * 4);
  CHECK(parameter_bytes(config, DType::fp64) == 2 * one.parameters);
  CHECK(four.parameters == one.parameters);
  CHECK(four.gradients == 2 * one.gradients);
  CHECK(four.optimizer == 2 * one.parameters);
  // The gradient of the head's matrix, and blocks of logits, have a fixed size.
  const double of_head = 4.0 * 10000 * 512;
  CHECK(four.activations - of_head ==
        doctest::Approx((one.activations - of_head) / 4).epsilon(0.2));
  options.accumulate = 4;
  CHECK(memory_needed(config, options, DType::fp32, 1).activations == four.activations);
}

TEST_CASE("a strategy that shards needs its parts, but at first the whole model") {
  TrainerOptions options;
  options.batch = 1;
  options.sequence = 1;
  const Config config = named_config("lab");
  const MemoryNeed all = memory_needed(config, options, DType::fp32, 1);
  const MemoryNeed part =
      memory_needed(config, options, DType::fp32, 1,
                    Held{.parameters = 0.25, .gradients = 0.25, .optimizer = 0.25});
  CHECK(part.parameters == all.parameters / 4);
  CHECK(part.gradients == all.gradients / 4);
  CHECK(part.optimizer == all.optimizer / 4);
  const Held none{.parameters = 0, .gradients = 0, .optimizer = 0};
  CHECK(memory_needed(config, options, DType::fp32, 1, none).total() == all.parameters);
  // Two units in bytes: the head with the last norm, which are as large as the embedding; and a
  // block, which has four square matrices, three of the feed-forward part and two norms.
  const double units = 4.0 * (10000 * 512 + 512 + 4 * 512 * 512 + 3 * 512 * 1344 + 2 * 512);
  const MemoryNeed units_whole =
      memory_needed(config, options, DType::fp32, 1,
                    Held{.parameters = 0, .gradients = 0, .optimizer = 0, .whole_units = true});
  CHECK(units_whole.parameters == units);
  CHECK(units_whole.gradients == 2 * units);
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
    options.checkpoint_activations = checkpointed;
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
  const MemoryNeed fp32 = memory_needed(config, options, DType::fp32, 1),
                   bf16 = memory_needed(config, options, DType::bf16, 1);
  CHECK(bf16.activations < 0.65 * fp32.activations);
  CHECK(bf16.parameters == fp32.parameters / 2);
  CHECK(bf16.gradients == fp32.gradients / 2);
  CHECK(bf16.optimizer == 1.5 * fp32.optimizer);  // fp32 masters besides the two moments
  const double seen = counted(config, options, DType::bf16);
  CHECK(bf16.total() > 0.9 * seen);
  CHECK(bf16.total() < 1.35 * seen);
}

TEST_CASE("the estimate holds on a device, which has more rows of logits at a time") {
  for (const Config& config : {sized(256, 64, 6, 160), sized(20000, 64, 2, 160)})
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      TrainerOptions options;
      options.steps = 2;
      options.batch = 16;
      options.sequence = 64;
      CAPTURE(config.vocabulary);
      CAPTURE(autograd::name_of(dtype));
      Held held;
      held.device = autograd::Device::emulated;
      const MemoryNeed here = memory_needed(config, options, dtype, 1),
                       there = memory_needed(config, options, dtype, 1, held);
      // 1024 tokens; on the CPU 342 rows of 20,000 logits are 32 MiB.
      if (config.vocabulary == 20000) CHECK(there.activations > here.activations);
      const double seen = counted(config, options, dtype, held.device);
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
  for (const DType dtype : {DType::fp32, DType::fp64, DType::bf16}) {
    for (const bool checkpointed : {false, true}) {
      for (const int accumulate : {1, 4}) {
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
        options.checkpoint_activations = checkpointed;
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

TEST_CASE("the estimates for evaluation and generation are a little too high") {
  for (const Config& config : {sized(256, 64, 6, 160), sized(4000, 64, 2, 160)}) {
    const Model model(config, DType::fp32);
    const std::vector<Tokens> sequences(8, Tokens(64, 7));
    const auto counted_by = [&](const auto& body) {
      const double before = static_cast<double>(autograd::memory_use().current);
      autograd::reset_peak_memory();
      body();
      return static_cast<double>(autograd::memory_use().peak) - before;
    };
    for (const bool gradients : {false, true}) {
      for (const bool logits : {false, true}) {
        CAPTURE(gradients);
        CAPTURE(logits);
        const auto need =
            memory_needed_to_evaluate(config, DType::fp32, 8, 64, gradients, logits ? 8 * 64 : 0);
        CHECK(need.parameters == parameter_bytes(config, DType::fp32));
        const double seen = counted_by(
            [&] { evaluate(model, sequences, {.gradients = gradients, .logits = logits}); });
        CHECK(need.gradients + need.activations > 0.97 * seen);
        CHECK(need.gradients + need.activations < 2 * seen);
      }
    }
    model.zero_grad();
    const double seen = counted_by([&] { generate(model, Tokens(60, 7), 30); });
    const auto need = memory_needed_to_generate(config, DType::fp32, 60);
    CHECK(need.activations > 0.97 * seen);
    CHECK(need.activations < 2 * seen);
  }
}
