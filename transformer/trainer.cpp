#include "transformer/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "autograd/engine/engine.hpp"
#include "autograd/kernels/profile.hpp"
#include "autograd/optim/adamw.hpp"
#include "autograd/optim/sgd.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/trace.hpp"

namespace ringside::transformer {

using autograd::NamedTensor;
using autograd::ParameterGroup;
using autograd::Tensor;

namespace {

// The batches of a run and the parameters that it starts from come from one seed, but not from the
// same numbers.
constexpr std::uint64_t batches_of_seed = 0x62617463686573;  // "batches"

std::vector<ParameterGroup> groups_of(const Model& model, double weight_decay) {
  ParameterGroup decayed{.parameters = {}, .weight_decay = weight_decay},
      free{.parameters = {}, .weight_decay = 0};
  for (const NamedTensor& parameter : model.named_parameters()) {
    if (!parameter.tensor.requires_grad()) continue;
    const bool matrix =
        parameter.tensor.dim() >= 2 && parameter.name.find("embed_tokens") == std::string::npos;
    (matrix ? decayed : free).parameters.push_back(parameter);
  }
  return {decayed, free};
}

std::unique_ptr<autograd::Optimizer> make_optimizer(const TrainerOptions& options,
                                                    std::vector<ParameterGroup> groups) {
  if (options.optimizer == OptimizerKind::sgd)
    return std::make_unique<autograd::SGD>(std::move(groups));
  const autograd::AdamWOptions adamw{.beta1 = options.beta1, .beta2 = options.beta2};
  return std::make_unique<autograd::AdamW>(std::move(groups), adamw);
}

const TrainerOptions& validated(const TrainerOptions& options, const Config& config,
                                const Corpus& corpus, int ranks) {
  validate(options, config, corpus, ranks);
  return options;
}

// What a trace of the step, if there is one, calls this part of it.
template <class Part>
void in_phase(const char* name, Part part) {
  autograd::Profile::begin();
  const TracedPhase phase(name);
  part();
}

}  // namespace

void validate(const TrainerOptions& options, const Config& config, const Corpus& corpus,
              int ranks) {
  validate(options, config, ranks);
  require(config.vocabulary >= corpus.vocabulary(), "{} {}, but the model's vocabulary is {}",
          corpus.tokens_are_bytes() ? "a token here is a byte, and there are"
                                    : "the text's tokenizer has ids for a vocabulary of",
          corpus.vocabulary(), config.vocabulary);
  Batches(corpus.training(), options.sequence, options.seed);  // throws if the text is too short
}

void validate(const TrainerOptions& options, const Config& config, int ranks) {
  validate(config);
  require(options.steps >= 1, "a run of {} steps is none: it needs at least 1", options.steps);
  const std::int64_t share = share_of_batch(options.batch, 0, ranks).count;
  require(options.accumulate >= 1 && share % options.accumulate == 0,
          "a rank's share of {} sequences does not divide into {} micro-batches: choose --batch "
          "and --accumulate so that it does",
          share, options.accumulate);
  require(options.sequence <= config.sequence,
          "sequences of {} tokens are longer than the {} that the model can see", options.sequence,
          config.sequence);
  const auto sound = [](double value) { return std::isfinite(value) && value >= 0; };
  require(sound(options.learning_rate), "the learning rate is {}, but it must be 0 or more",
          options.learning_rate);
  require(sound(options.min_learning_rate) && options.min_learning_rate <= options.learning_rate,
          "the learning rate cannot fall from {} to {}", options.learning_rate,
          options.min_learning_rate);
  require(options.warmup >= 0, "a warm-up of {} steps is none", options.warmup);
  require(sound(options.clip), "gradients cannot be clipped to a norm of {}", options.clip);
  require(sound(options.weight_decay), "the weight decay is {}, but it must not be negative",
          options.weight_decay);
  require(options.validate_every >= 0 && options.validation_windows >= 1,
          "an examination every {} steps on {} sequences is none", options.validate_every,
          options.validation_windows);
}

Trainer::Trainer(Model& model, const Corpus& corpus, ParallelStrategy& strategy,
                 const TrainerOptions& options, Observer observer)
    : model_(model),
      corpus_(corpus),
      strategy_(strategy),
      options_(validated(options, model.config(), corpus, strategy.size())),
      observer_(std::move(observer)),
      learning_rate_{options.learning_rate, options.min_learning_rate, options.warmup,
                     options.steps},
      training_(corpus.training(), options.sequence, options.seed ^ batches_of_seed) {
  const PackedTokens& held_out = corpus.validation();
  if (held_out.size() > static_cast<std::size_t>(options.sequence))
    validation_.emplace(held_out, options.sequence, options.seed);
  model_.set_checkpoint_activations(options_.checkpoint_activations);
  strategy_.prepare(model_);
  require_same_everywhere(corpus.fingerprint(), "the same text");
  require_same_everywhere(corpus.vocabulary_fingerprint(), "the same tokenizer");
  optimizer_ = strategy_.make_optimizer(
      groups_of(model_, options.weight_decay), [this](std::vector<ParameterGroup> groups) {
        return transformer::make_optimizer(options_, std::move(groups));
      });
}

void Trainer::require_same_everywhere(double integer, const char* what) {
  require(strategy_.average(integer) == integer,
          "the ranks do not all read {}: give every rank the same files", what);
}

void Trainer::resume_at(std::int64_t steps_taken) {
  require(steps_taken < options_.steps,
          "{} of {} steps are taken already: ask for more with --steps", steps_taken,
          options_.steps);
  steps_taken_ = steps_taken;
}

void Trainer::run(std::int64_t stop_at) {
  while (steps_taken_ < std::min(stop_at, options_.steps)) {
    step();
    if (options_.validate_every == 0 || steps_taken_ % options_.validate_every != 0) continue;
    const auto bits_per_byte = validate();
    if (bits_per_byte && observer_.after_validation)
      observer_.after_validation(steps_taken_, *bits_per_byte);
  }
}

StepReport Trainer::step() {
  const auto start = Clock::now();
  const double communicated_before = strategy_.communication_seconds();
  StepReport report;
  report.learning_rate = learning_rate_.at(steps_taken_);

  strategy_.clear_gradients(*optimizer_);
  const double own_loss = accumulate_gradients();
  in_phase("finish gradients", [&] { strategy_.finish_gradients(); });
  in_phase("clip",
           [&] { report.gradient_norm = strategy_.clip_gradients(*optimizer_, options_.clip); });
  optimizer_->set_learning_rate(report.learning_rate);
  in_phase("optimizer", [&] { strategy_.step(*optimizer_); });
  ++steps_taken_;

  report.step = steps_taken_;
  in_phase("loss of all ranks", [&] { report.loss = strategy_.average(own_loss); });
  require(
      std::isfinite(report.loss),
      "the loss of step {} is {}: training has diverged; try a lower learning rate (it was {:.2g})",
      report.step, report.loss, report.learning_rate);
  report.bits_per_byte =
      bits_per_byte(report.loss, training_.draw(steps_taken_ - 1, {0, options_.batch}));
  report.step_seconds = seconds_since(start);
  report.communication_seconds = strategy_.communication_seconds() - communicated_before;
  report.tokens_per_second =
      static_cast<double>(options_.batch * options_.sequence) / report.step_seconds;
  if (observer_.after_step) observer_.after_step(report);
  return report;
}

// Backward over this rank's share of the batch, a micro-batch at a time. Each gives its mean, and
// the mean of these means is that of all. Returns the loss.
double Trainer::accumulate_gradients() {
  const Share share = share_of_batch(options_.batch, strategy_.rank(), strategy_.size());
  const std::int64_t parts = options_.accumulate, count = share.count / parts;
  double sum = 0;
  for (std::int64_t part = 0; part < parts; ++part) {
    const bool last = part == parts - 1;
    const auto quiet = last ? nullptr : strategy_.no_sync();
    Tensor loss;
    in_phase("forward", [&] {
      loss = loss_of(training_.draw(steps_taken_, {share.first + part * count, count}));
    });
    in_phase("backward", [&] {
      autograd::backward(
          loss, Tensor::scalar(1.0 / static_cast<double>(parts), loss.dtype(), loss.device()));
    });
    sum += loss.item();
  }
  return sum / static_cast<double>(parts);
}

std::optional<double> Trainer::validate() {
  if (!validation_) return std::nullopt;
  const autograd::NoGrad no_history;
  const std::int64_t windows = std::min(options_.validation_windows, validation_->windows());
  const std::int64_t first = windows * strategy_.rank() / strategy_.size(),
                     end = windows * (strategy_.rank() + 1) / strategy_.size();
  const std::int64_t at_once = options_.batch / strategy_.size() / options_.accumulate;
  // A forward pass may be a matter of all ranks: so all take as many as the one with the largest
  // share.
  const std::int64_t largest_share = (windows + strategy_.size() - 1) / strategy_.size();

  double sum = 0;  // of the windows' losses
  for (std::int64_t done = 0; done < largest_share; done += at_once) {
    const Share share{first + done, std::min(at_once, end - first - done)};
    if (share.count > 0)
      sum += loss_of(validation_->consecutive(share)).item() * static_cast<double>(share.count);
    else if (strategy_.forward_communicates())
      (void)loss_of(validation_->consecutive({0, 1}));
  }
  const double nats_per_token =
      strategy_.average(sum) * strategy_.size() / static_cast<double>(windows);
  return bits_per_byte(nats_per_token, validation_->consecutive({0, windows}));
}

// All nats by all bytes of the tokens that were foretold, over all ranks. Every rank can draw the
// whole batch, so none asks another.
double Trainer::bits_per_byte(double nats_per_token, const Batch& whole) const {
  const double tokens = static_cast<double>(whole.target.size()),
               bytes = static_cast<double>(corpus_.bytes_of(whole.target));
  return nats_per_token / std::numbers::ln2 * (tokens / bytes);
}

Tensor Trainer::loss_of(const Batch& batch) const {
  const autograd::Shape shape{batch.sequences, batch.length};
  return model_.loss(Tensor::from(batch.input, shape), Tensor::from(batch.target, shape));
}

}  // namespace ringside::transformer
