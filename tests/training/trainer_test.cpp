#include "training/trainer.hpp"

#include <cmath>
#include <numbers>

#include <doctest/doctest.h>

#include "autograd/engine/engine.hpp"
#include "base/error.hpp"
#include "tests/transformer/encoded_text.hpp"
#include "tests/transformer/small_model.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "training/strategies/single_process.hpp"

using namespace ringside;
using namespace ringside::training;
using namespace ringside::transformer;
using autograd::DType;
using autograd::NamedTensor;
using autograd::Tensor;
using tests::small_config;
using tests::small_text;

namespace {

// small_text() as tokens.
Corpus encoded(std::int32_t vocabulary) {
  const TemporaryDirectory directory;
  tests::PairTokenizer(vocabulary).write(directory.path() / "text.u16", small_text());
  return read_corpus({directory.path() / "text.u16"});
}

TrainerOptions brief() {
  TrainerOptions options;
  options.steps = 5;
  options.batch = 4;
  options.sequence = 16;
  return options;
}

std::vector<double> numbers_of(const Model& model, bool gradients) {
  std::vector<double> numbers;
  for (const auto& [name, tensor] : model.named_parameters()) {
    const auto values = (gradients ? tensor.grad() : tensor).values<double>();
    numbers.insert(numbers.end(), values.begin(), values.end());
  }
  return numbers;
}

double norm_of(const std::vector<double>& numbers) {
  double squares = 0;
  for (const double number : numbers) squares += number * number;
  return std::sqrt(squares);
}

// One rank of several, alone: it computes its share of the batch and communicates nothing.
class LoneRank final : public ParallelStrategy {
 public:
  LoneRank(int rank, int size) : rank_(rank), size_(size) {}
  int data_rank() const override { return rank_; }
  int data_ranks() const override { return size_; }
  void prepare(autograd::Module&) override {}
  void finish_gradients() override {}
  double average(double value) override { return value + difference_of_others; }
  double communication_seconds() const override { return 0; }

  double difference_of_others = 0;

 private:
  int rank_, size_;
};

// Records the calls of the trainer.
class CallRecorder final : public ParallelStrategy {
 public:
  int data_rank() const override { return 0; }
  int data_ranks() const override { return 1; }
  void prepare(autograd::Module&) override { calls += "prepare "; }
  void finish_gradients() override { calls += "finish "; }
  double gradient_norm(const autograd::Optimizer&) override { return calls += "norm ", 0; }
  void step(autograd::Optimizer&) override { calls += "step "; }
  double average(double value) override { return calls += "average ", value; }
  double communication_seconds() const override { return 0; }

  std::string calls;
};

std::string refusal(TrainerOptions options, int ranks = 1, std::size_t text = 20'000) {
  try {
    validate(options, small_config(), Corpus(small_text(text)), ranks);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("training on a little text lowers its loss") {
  Model model(small_config());
  const Corpus corpus(small_text());
  SingleProcess strategy;
  TrainerOptions options = brief();
  options.steps = 120;
  options.learning_rate = 1e-2;
  options.min_learning_rate = 1e-3;
  options.warmup = 10;
  double first = 0, last = 0;
  Trainer trainer(model, corpus, strategy, options,
                  {.after_step =
                       [&](const StepReport& report) {
                         (report.step == 1 ? first : last) = report.bits_per_byte;
                       },
                   .after_validation = {}});
  const double before = trainer.validate().value();
  trainer.run();
  CHECK(first == doctest::Approx(8).epsilon(0.02));
  CHECK(before == doctest::Approx(8).epsilon(0.02));
  CHECK(last < 2.5);
  CHECK(trainer.validate().value() < 2.5);
}

TEST_CASE("training with SGD lowers the loss too") {
  Model model(small_config());
  const Corpus corpus(small_text());
  SingleProcess strategy;
  TrainerOptions options = brief();
  options.steps = 60;
  options.optimizer = OptimizerKind::sgd;
  options.learning_rate = options.min_learning_rate = 0.5;
  Trainer trainer(model, corpus, strategy, options);
  const double before = trainer.validate().value();
  trainer.run();
  CHECK(trainer.validate().value() < 0.7 * before);
}

TEST_CASE("the same seed gives the same run to the bit and another seed does not") {
  const Corpus corpus(small_text());
  const auto run = [&](std::uint64_t seed) {
    Model model(small_config(), DType::fp64);
    SingleProcess strategy;
    TrainerOptions options = brief();
    options.seed = seed;
    Trainer(model, corpus, strategy, options).run();
    return numbers_of(model, false);
  };
  const auto one = run(1);
  CHECK((one == run(1)));
  CHECK_FALSE((one == run(2)));
}

TEST_CASE("the mean of the ranks' gradients is the gradient of the whole batch") {
  const Corpus corpus(small_text());
  TrainerOptions options = brief();
  options.optimizer = OptimizerKind::sgd;
  options.clip = 0;
  options.batch = 12;
  const auto gradients = [&](int rank, int size) {
    Model model(small_config(), DType::fp64);
    LoneRank strategy(rank, size);
    Trainer(model, corpus, strategy, options).step();
    return numbers_of(model, true);
  };
  const auto whole = gradients(0, 1);
  for (const int ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    std::vector<double> mean(whole.size());
    for (int rank = 0; rank < ranks; ++rank) {
      const auto part = gradients(rank, ranks);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += part[i] / ranks;
    }
    double worst = 0;
    for (std::size_t i = 0; i < mean.size(); ++i)
      worst = std::max(worst, std::abs(mean[i] - whole[i]));
    CHECK(worst < 1e-14);
  }
}

TEST_CASE("ranks divide the validation windows and get the same mean") {
  const Corpus corpus(small_text());
  TrainerOptions options = brief();
  options.batch = 12;
  options.validation_windows = 10;  // 5 and 5; 3, 3 and 4; some of 12 ranks get none
  const auto validation_of = [&](int rank, int size) {
    Model model(small_config(), DType::fp64);
    LoneRank strategy(rank, size);
    return Trainer(model, corpus, strategy, options).validate().value();
  };
  const double whole = validation_of(0, 1);
  for (const int ranks : {2, 3, 12}) {
    double mean = 0;  // what strategy.average would compute
    for (int rank = 0; rank < ranks; ++rank) mean += validation_of(rank, ranks) / ranks;
    CHECK(mean == doctest::Approx(whole).epsilon(1e-12));
  }
}

TEST_CASE("gradients are clipped by their global norm, and the report has the norm before") {
  const Corpus corpus(small_text());
  const auto first_step = [&](double clip) {
    Model model(small_config(), DType::fp64);
    SingleProcess strategy;
    TrainerOptions options = brief();
    options.clip = clip;
    options.optimizer = OptimizerKind::sgd;  // moves by the learning rate times the gradient
    options.weight_decay = 0;
    auto moved = numbers_of(model, false);
    const StepReport report = Trainer(model, corpus, strategy, options).step();
    CHECK(report.gradient_norm == doctest::Approx(norm_of(numbers_of(model, true))).epsilon(1e-12));
    const auto after = numbers_of(model, false);
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] -= after[i];
    return std::pair(report.gradient_norm, norm_of(moved) / report.learning_rate);
  };
  const auto [norm, unclipped] = first_step(0);
  CHECK(norm == doctest::Approx(unclipped).epsilon(1e-9));
  const auto [before, after] = first_step(norm / 4);
  CHECK(before == doctest::Approx(norm).epsilon(1e-12));
  CHECK(after == doctest::Approx(norm / 4).epsilon(1e-4));
  CHECK(first_step(norm * 2).second == doctest::Approx(norm).epsilon(1e-9));
}

TEST_CASE("a step of SGD moves every parameter against its gradient by the learning rate") {
  Model model(small_config(), DType::fp64);
  const Corpus corpus(small_text());
  SingleProcess strategy;
  TrainerOptions options = brief();
  options.optimizer = OptimizerKind::sgd;
  options.weight_decay = 0;
  options.clip = 0;
  options.warmup = 4;
  const auto before = numbers_of(model, false);
  Trainer trainer(model, corpus, strategy, options);
  const StepReport report = trainer.step();
  CHECK(report.learning_rate == doctest::Approx(options.learning_rate / 4));
  const auto after = numbers_of(model, false), gradient = numbers_of(model, true);
  double worst = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    worst = std::max(worst, std::abs(after[i] - (before[i] - report.learning_rate * gradient[i])));
  }
  CHECK(worst < 1e-15);
}

TEST_CASE("the trainer calls the strategy in the order of a step") {
  Model model(small_config());
  const Corpus corpus(small_text());
  CallRecorder strategy;
  Trainer trainer(model, corpus, strategy, brief());
  // The averages compare the fingerprints of the text and of the tokenizer.
  CHECK(strategy.calls == "prepare average average ");
  strategy.calls.clear();
  trainer.step();
  trainer.step();
  CHECK(strategy.calls == "finish norm average step finish norm average step ");
}

TEST_CASE("the gradients of a step are those of its batch alone") {
  const Corpus corpus(small_text());
  TrainerOptions options = brief();
  options.optimizer = OptimizerKind::sgd;
  options.learning_rate = options.min_learning_rate = 0;  // keeps the parameters
  options.clip = 0;
  const auto gradients_after = [&](int steps, std::uint64_t seed) {
    Model model(small_config(), DType::fp64);
    SingleProcess strategy;
    options.seed = seed;
    Trainer trainer(model, corpus, strategy, options);
    for (int i = 0; i < steps; ++i) trainer.step();
    return norm_of(numbers_of(model, true));
  };
  // If gradients accumulated over steps, the norm would grow.
  const double first = gradients_after(1, 0), fifth = gradients_after(5, 0);
  CHECK(fifth < 1.5 * first);
  CHECK(fifth != first);  // another batch
}

TEST_CASE("weight decay applies to matrices and not to norms and the embedding") {
  const Corpus corpus(small_text());
  const auto after_a_step = [&](double decay, bool tied) {
    Config config = small_config();
    config.tied_head = tied;
    auto model = std::make_unique<Model>(config, DType::fp64);
    SingleProcess strategy;
    TrainerOptions options = brief();
    options.weight_decay = decay;
    Trainer(*model, corpus, strategy, options).step();
    return model;
  };
  for (const bool tied : {false, true}) {
    const auto without = after_a_step(0, tied), with = after_a_step(0.5, tied);
    const auto a = without->named_parameters(), b = with->named_parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      CAPTURE(a[i].name);
      const bool decayed =
          a[i].name.find("proj") != std::string::npos || a[i].name == "lm_head.weight";
      CHECK((a[i].tensor.values<double>()[0] != b[i].tensor.values<double>()[0]) == decayed);
    }
  }
}

TEST_CASE("a frozen parameter does not change") {
  Model model(small_config(), DType::fp64);
  const Corpus corpus(small_text());
  SingleProcess strategy;
  Tensor frozen = model.named_parameters()[2].tensor;
  frozen.set_requires_grad(false);
  const Tensor before = frozen.clone();
  Trainer(model, corpus, strategy, brief()).run();
  for (std::int64_t i = 0; i < frozen.elements(); ++i)
    CHECK(frozen.values<double>()[i] == before.values<double>()[i]);
}

TEST_CASE("each step is reported, and validation runs every few steps") {
  Model model(small_config());
  const Corpus corpus(small_text());
  SingleProcess strategy;
  TrainerOptions options = brief();
  options.validate_every = 2;
  std::vector<std::int64_t> steps, validated;
  Trainer trainer(
      model, corpus, strategy, options,
      {.after_step =
           [&](const StepReport& report) {
             steps.push_back(report.step);
             CHECK(report.bits_per_byte == doctest::Approx(report.loss / std::numbers::ln2));
             CHECK(report.step_seconds > 0);
             CHECK(report.communication_seconds == 0);
             CHECK(report.tokens_per_second == doctest::Approx(64 / report.step_seconds));
           },
       .after_validation = [&](std::int64_t step, double) { validated.push_back(step); }});
  trainer.run();
  CHECK(steps == std::vector<std::int64_t>{1, 2, 3, 4, 5});
  CHECK(validated == std::vector<std::int64_t>{2, 4});
}

TEST_CASE("without enough held-out text for one sequence there is no validation") {
  Model model(small_config());
  const Corpus corpus(small_text(200));  // 10 bytes are held out
  SingleProcess strategy;
  CHECK_FALSE(Trainer(model, corpus, strategy, brief()).validate().has_value());
}

TEST_CASE("ranks that read different texts are refused") {
  Model model(small_config());
  LoneRank strategy(0, 2);
  strategy.difference_of_others = 0.5;
  const Corpus corpus(small_text());
  CHECK_THROWS_WITH_AS(Trainer(model, corpus, strategy, brief()),
                       "the ranks do not all read the same text: give every rank the same files",
                       Error);
}

TEST_CASE("bits per byte are the bits of all predicted tokens by their bytes, on any ranks") {
  const Corpus corpus = encoded(280);
  Config config = small_config();
  config.vocabulary =
      corpus.vocabulary().size() + 3;  // a model may have more tokens than its tokenizer
  TrainerOptions options = brief();
  options.batch = 12;
  options.validation_windows = 5;
  const auto& counts = corpus.vocabulary().byte_counts();
  const auto expected = [&](double nats, const Batch& batch) {
    double bytes = 0;
    for (const auto token : batch.target) bytes += counts[static_cast<std::size_t>(token)];
    CHECK(bytes > 1.2 * static_cast<double>(batch.target.size()));
    return nats * static_cast<double>(batch.target.size()) / bytes / std::numbers::ln2;
  };
  constexpr std::uint64_t batch_stream = 0x62617463686573;  // as in trainer.cpp
  const Batch batch = Batches(corpus.training(), 16, batch_stream).draw(0, {0, 12});
  const Batch held_out = Batches(corpus.validation(), 16, 0).consecutive({0, 5});
  for (const int ranks : {1, 2, 3}) {
    double mean = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      Model model(config, DType::fp64);
      LoneRank strategy(rank, ranks);
      Trainer trainer(model, corpus, strategy, options);
      const Tensor nats =
          model.loss(Tensor::from(held_out.input, {5, 16}), Tensor::from(held_out.target, {5, 16}));
      mean += trainer.validate().value() / ranks;  // what strategy.average would compute
      if (rank == ranks - 1)
        CHECK(mean == doctest::Approx(expected(nats.item(), held_out)).epsilon(1e-12));
      const StepReport report = trainer.step();
      CHECK(report.bits_per_byte == doctest::Approx(expected(report.loss, batch)).epsilon(1e-12));
    }
  }
}

TEST_CASE("a run with invalid options is refused before it starts") {
  CHECK(refusal(brief()) == "accepted");
  CHECK(refusal(brief(), 3) ==
        "a batch of 4 sequences does not divide by 3 ranks: choose a multiple of 3, so that every "
        "rank reads equally much");
  CHECK(refusal(brief(), 1, 16) ==
        "a sequence of 16 bytes needs 17 bytes of text, but there are 16: give more text or a "
        "shorter sequence");
  TrainerOptions options = brief();
  options.sequence = 17;
  CHECK(refusal(options) == "sequences of 17 tokens are longer than the 16 that the model can see");
  options = brief();
  options.steps = 0;
  CHECK(refusal(options) == "a run needs at least 1 step, not 0");
  options = brief();
  options.min_learning_rate = 1;
  CHECK(refusal(options) == "the learning rate cannot fall from 0.003 to 1");
  CHECK_THROWS_WITH_AS(
      validate(brief(), small_config(), encoded(270), 1),
      "the text's tokenizer has ids for a vocabulary of 270, but the model's vocabulary is 256",
      Error);
  Config narrow = small_config();
  narrow.vocabulary = 200;
  CHECK_THROWS_WITH_AS(
      validate(brief(), narrow, Corpus(small_text()), 1),
      "a token here is a byte, and there are 256, but the model's vocabulary is 200", Error);
  options = brief();
  options.clip = -1;
  CHECK(refusal(options) == "gradients cannot be clipped to a norm of -1");
}
