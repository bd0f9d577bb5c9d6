// Compares a whole Llama on a device with the same model on the CPU: loss, every gradient,
// training, checkpoints, generated text.
#include <cmath>
#include <memory>
#include <string>

#include "autograd/optim/optimizer.hpp"
#include "base/random.hpp"
#include "tests/autograd/device/against_cpu.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "training/state/step_dump.hpp"
#include "training/state/training_state.hpp"
#include "training/strategies/single_process.hpp"
#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/checkpoint/stored_tensor.hpp"
#include "transformer/inference/evaluation.hpp"
#include "transformer/inference/generation.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;
using namespace ringside::training;
using namespace ringside::transformer;

namespace {

// Sizes are odd where possible, and query heads share a key head.
Config odd_llama(bool tied_head = false) {
  return {.d_model = 24,
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .d_ff = 37,
          .sequence = 19,
          .tied_head = tied_head};
}

Tensor some_tokens(std::int64_t sequences, std::int64_t length, std::uint64_t seed) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < sequences * length; ++i)
    ids.push_back(
        static_cast<std::int32_t>(random_below(256, seed, 0, static_cast<std::uint64_t>(i))));
  return Tensor::from(ids, {sequences, length});
}

// Compares loss and gradients on the device and on the CPU. In bf16 the two round differently in
// every layer. So both are compared with the same model in fp32, and the device's error may be 1.5
// times that of the CPU (attention on the device also multiplies probabilities in bf16).
void check_gradients_against_cpu(DType dtype, bool tied_head, bool checkpointed) {
  CAPTURE(std::string(name_of(dtype)));
  CAPTURE(tied_head);
  CAPTURE(checkpointed);
  Model exact(odd_llama(tied_head)), here(odd_llama(tied_head), dtype),
      there(odd_llama(tied_head), dtype, device_under_test());
  CHECK(there.device() == device_under_test());
  const auto in_fp32 = exact.named_parameters(), expected = here.named_parameters(),
             seen = there.named_parameters();
  REQUIRE(seen.size() == expected.size());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    CHECK(numbers_of(seen[i].tensor) ==
          numbers_of(expected[i].tensor));  // initial values are equal bit for bit
    in_fp32[i].tensor.copy_(to_compute_dtype(expected[i].tensor.detach()));
  }
  const Tensor tokens = some_tokens(3, 17, 1), targets = some_tokens(3, 17, 2);
  for (Model* model : {&exact, &here, &there}) {
    model->set_recompute({checkpointed ? 1 : 0});
    backward(model->loss(tokens, targets));
  }
  const bool narrow = dtype == DType::bf16;
  const auto near = [&](const Tensor& of_device, const Tensor& of_cpu, const Tensor& right) {
    return narrow ? apart_in_norm(of_device, right) <=
                        std::max(2e-2, 1.5 * apart_in_norm(of_cpu, right))
                  : apart(of_device, of_cpu) <= 1e-4;
  };
  {
    const NoGrad no_grad;
    CHECK(there.loss(tokens, targets).item() ==
          doctest::Approx(here.loss(tokens, targets).item()).epsilon(narrow ? 2e-3 : 1e-5));
    CHECK(near(there.forward(tokens), here.forward(tokens), exact.forward(tokens)));
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    CAPTURE(seen[i].name);
    REQUIRE(seen[i].tensor.grad().defined());
    CHECK(seen[i].tensor.grad().dtype() == dtype);
    CHECK(near(seen[i].tensor.grad(), expected[i].tensor.grad(), in_fp32[i].tensor.grad()));
  }
}

Bytes some_text() {
  Bytes text(20'000);
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<std::uint8_t>("the ring passes each chunk on. "[i % 31] + i % 3);
  return text;
}

TrainerOptions twenty_steps(OptimizerKind optimizer) {
  TrainerOptions options;
  options.steps = 20;
  options.batch = 4;
  options.accumulate = 2;
  options.sequence = 16;
  options.optimizer = optimizer;
  options.learning_rate = optimizer == OptimizerKind::sgd ? 0.1 : 3e-3;
  options.clip = 0.5;
  options.seed = 5;
  return options;
}

struct Run {
  Run(Device device, const TrainerOptions& options, DType dtype = DType::fp32)
      : model(odd_llama(), dtype, device),
        trainer(model, corpus, strategy, options,
                {[this](const StepReport& r) { losses.push_back(r.loss); }, {}}) {}

  Corpus corpus{some_text()};
  Model model;
  SingleProcess strategy;
  std::vector<double> losses;
  Trainer trainer;
};

void check_losses(const std::vector<double>& seen, const std::vector<double>& expected,
                  double tolerance) {
  REQUIRE(seen.size() == expected.size());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    CAPTURE(i);
    CHECK(seen[i] == doctest::Approx(expected[i]).epsilon(tolerance));
  }
}

}  // namespace

TEST_CASE("device model: loss and every gradient agree with the CPU's") {
  if (skipped()) return;
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const bool tied_head : {false, true})
      for (const bool checkpointed : {false, true})
        check_gradients_against_cpu(dtype, tied_head, checkpointed);
}

TEST_CASE("device model: twenty steps of AdamW and of SGD follow the CPU's") {
  if (skipped()) return;
  for (const OptimizerKind optimizer : {OptimizerKind::adamw, OptimizerKind::sgd}) {
    Run there(device_under_test(), twenty_steps(optimizer)),
        here(Device::cpu, twenty_steps(optimizer));
    there.trainer.run();
    here.trainer.run();
    check_losses(there.losses, here.losses, 1e-4);
    CHECK(here.losses.back() < here.losses.front() - 0.1);
    CHECK(*there.trainer.validate() == doctest::Approx(*here.trainer.validate()).epsilon(1e-4));
    for (const NamedTensor& state : there.trainer.optimizer().state())
      CHECK(state.tensor.device() ==
            (state.name.ends_with(".step") ? Device::cpu : device_under_test()));
  }
}

TEST_CASE("device model: training in bf16 with masters follows the CPU's") {
  if (skipped()) return;
  Run there(device_under_test(), twenty_steps(OptimizerKind::adamw), DType::bf16),
      here(Device::cpu, twenty_steps(OptimizerKind::adamw), DType::bf16);
  there.trainer.run();
  here.trainer.run();
  check_losses(there.losses, here.losses, 2e-2);
}

TEST_CASE("device model: after the first steps, training allocates no device memory") {
  if (skipped()) return;
  Run run(device_under_test(), twenty_steps(OptimizerKind::adamw));
  run.trainer.run(3);
  const auto steady = system_allocations();
  run.trainer.run(10);
  CHECK(system_allocations() == steady);
}

TEST_CASE("device model: a run saved on a device resumes on the CPU, and the reverse") {
  if (skipped()) return;
  Run whole(Device::cpu, twenty_steps(OptimizerKind::adamw));
  whole.trainer.run();
  for (const auto& [from, to] :
       {std::pair(device_under_test(), Device::cpu), std::pair(Device::cpu, device_under_test())}) {
    TemporaryDirectory folder;
    Run first(from, twenty_steps(OptimizerKind::adamw));
    first.trainer.run(8);
    save_run(folder.path(), first.model, first.trainer, Vocabulary());
    Run second(to, twenty_steps(OptimizerKind::adamw));
    load_parameters(folder.path(), second.model);
    load_state(read_run(folder.path()), second.model, second.trainer);
    second.trainer.run();
    check_losses(second.losses, {whole.losses.begin() + 8, whole.losses.end()}, 1e-4);
  }
}

TEST_CASE("device model: evaluation and generated text agree with the CPU's") {
  if (skipped()) return;
  const Model here(odd_llama()), there(odd_llama(), DType::fp32, device_under_test());
  const std::vector<Tokens> sequences{{1, 2, 3, 4, 5}, {9, 8, 7}, {200, 100, 50}};
  const EvaluateOptions options{.gradients = true, .logits = true, .at_once = 2};
  const Evaluation expected = evaluate(here, sequences, options),
                   seen = evaluate(there, sequences, options);
  CHECK(seen.loss == doctest::Approx(expected.loss).epsilon(1e-5));
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    CHECK(apart(seen.logits[s], expected.logits[s]) <= 1e-4);
    for (std::size_t t = 0; t < expected.log_probabilities[s].size(); ++t)
      CHECK(seen.log_probabilities[s][t] ==
            doctest::Approx(expected.log_probabilities[s][t]).epsilon(1e-4));
  }
  TemporaryDirectory folder;
  save_gradients(folder.path() / "there.safetensors", there);
  save_gradients(folder.path() / "here.safetensors", here);
  CHECK(SafetensorsFile(folder.path() / "there.safetensors").entries().size() ==
        SafetensorsFile(folder.path() / "here.safetensors").entries().size());
  SampleOptions likeliest;
  likeliest.temperature = 0;
  // 30 tokens are more than the model sees at once.
  CHECK(generate(there, {65, 66}, 30, likeliest) == generate(here, {65, 66}, 30, likeliest));
  CHECK_THROWS_WITH_AS(view_of("x", there.parameters().front()),
                       (std::string("the tensor 'x' is on ") + name_of(device_under_test()) +
                        ": copy it to the CPU before it is written")
                           .c_str(),
                       Error);
}
