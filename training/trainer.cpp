#include "training/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <string>
#include <utility>

#include "autograd/optim/adamw.hpp"
#include "autograd/optim/sgd.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "training/phase.hpp"
#include "training/step.hpp"
#include "transformer/parameter_table.hpp"

namespace ringside::training {

using autograd::NamedTensor;
using autograd::ParameterGroup;

namespace {

// Combined with a run's seed, so that its batches and its initial parameters use different random
// numbers.
constexpr std::uint64_t batch_stream = 0x62617463686573;  // "batches"

std::vector<ParameterGroup> groups_of(const transformer::Model& model, double weight_decay) {
  ParameterGroup decayed{.parameters = {}, .weight_decay = weight_decay},
      undecayed{.parameters = {}, .weight_decay = 0};
  const transformer::ParameterTable table(model.config());
  for (const NamedTensor& parameter : model.named_parameters()) {
    if (!parameter.tensor.requires_grad()) continue;
    const bool is_decayed = table.entry(parameter.name).is_decayed();
    (is_decayed ? decayed : undecayed).parameters.push_back(parameter);
  }
  return {decayed, undecayed};
}

std::unique_ptr<autograd::Optimizer> make_optimizer(const TrainerOptions& options,
                                                    std::vector<ParameterGroup> groups) {
  if (options.optimizer == OptimizerKind::sgd)
    return std::make_unique<autograd::SGD>(std::move(groups));
  const autograd::AdamWOptions adamw{.beta1 = options.beta1, .beta2 = options.beta2};
  return std::make_unique<autograd::AdamW>(std::move(groups), adamw);
}

const TrainerOptions& validated(const TrainerOptions& options, const transformer::Config& config,
                                const transformer::Corpus& corpus, int ranks) {
  validate(options, config, corpus, ranks);
  return options;
}

}  // namespace

void validate(const TrainerOptions& options, const transformer::Config& config,
              const transformer::Corpus& corpus, int ranks) {
  validate(options, config, ranks);
  const transformer::Vocabulary& vocabulary = corpus.vocabulary();
  require(config.vocabulary >= vocabulary.size(), "{} {}, but the model's vocabulary is {}",
          vocabulary.is_bytes() ? "a token here is a byte, and there are"
                                : "the text's tokenizer has ids for a vocabulary of",
          vocabulary.size(), config.vocabulary);
  transformer::Batches(corpus.training(), options.sequence,
                       options.seed);  // throws if the text is too short
}

void validate(const TrainerOptions& options, const transformer::Config& config, int ranks) {
  validate(config);
  require(options.steps >= 1, "a run needs at least 1 step, not {}", options.steps);
  const std::int64_t share = transformer::share_of_batch(options.batch, 0, ranks).count;
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
  require(options.warmup >= 0, "the warm-up is {} steps, but it must be 0 or more", options.warmup);
  require(sound(options.clip), "gradients cannot be clipped to a norm of {}", options.clip);
  require(sound(options.weight_decay), "the weight decay is {}, but it must not be negative",
          options.weight_decay);
  require(options.validate_every >= 0 && options.validation_windows >= 1,
          "validation every {} steps on {} sequences is not possible: expected 0 or more steps and "
          "at least 1 sequence",
          options.validate_every, options.validation_windows);
}

Trainer::Trainer(transformer::Model& model, const transformer::Corpus& corpus,
                 ParallelStrategy& strategy, const TrainerOptions& options, Observer observer)
    : model_(model),
      corpus_(corpus),
      strategy_(&strategy),
      options_(validated(options, model.config(), corpus, strategy.data_ranks())),
      observer_(std::move(observer)),
      learning_rate_(options.rates()),
      training_(corpus.training(), options.sequence, options.seed ^ batch_stream) {
  const transformer::PackedTokens& held_out = corpus.validation();
  if (held_out.size() > static_cast<std::size_t>(options.sequence))
    validation_.emplace(held_out, options.sequence, options.seed);
  model_.set_recompute(options_.recompute);
  model_.add_balance_loss(options_.accumulate);
  prepare();
  optimizer_ = strategy_->make_optimizer(
      groups_of(model_, options.weight_decay), [this](std::vector<ParameterGroup> groups) {
        return training::make_optimizer(options_, std::move(groups));
      });
}

void Trainer::prepare() {
  strategy_->prepare(model_);
  require_same_everywhere(corpus_.fingerprint(), "the same text");
  require_same_everywhere(corpus_.vocabulary().fingerprint(), "the same tokenizer");
}

void Trainer::require_same_everywhere(double integer, const char* what) {
  require(strategy_->same_everywhere(integer),
          "the ranks do not all read {}: give every rank the same files", what);
}

void Trainer::resume_at(std::int64_t steps_taken) {
  require(steps_taken < options_.steps,
          "{} of {} steps are taken already: ask for more with --steps", steps_taken,
          options_.steps);
  steps_taken_ = steps_taken;
}

void Trainer::change_strategy(ParallelStrategy& strategy, std::int64_t steps_taken) {
  training::validate(options_, model_.config(), corpus_, strategy.data_ranks());
  optimizer_->zero_grad();
  strategy_ = &strategy;
  steps_taken_ = steps_taken;
  prepare();
}

void Trainer::run(std::int64_t stop_at) {
  const std::int64_t last = std::min(stop_at, options_.steps);
  while (steps_taken_ < last) {
    step();
    if (steps_taken_ < last && any_rank_is_interrupted()) return;
    if (options_.validate_every == 0 || steps_taken_ % options_.validate_every != 0) continue;
    const auto bits_per_byte = validate();
    if (bits_per_byte && observer_.after_validation)
      observer_.after_validation(steps_taken_, *bits_per_byte);
  }
}

// A signal reaches the ranks in different steps: they agree on one.
bool Trainer::any_rank_is_interrupted() {
  if (!observer_.interrupted) return false;
  const bool here = observer_.interrupted();
  return !strategy_->same_everywhere(here ? 1 : 0) || here;
}

StepReport Trainer::step() {
  const auto start = Clock::now();
  const double communicated_before = strategy_->communication_seconds();
  const std::vector<SecondsAlong> by_axis_before = strategy_->communication_by_axis();
  StepReport report;
  report.learning_rate = learning_rate_.at(steps_taken_);

  (void)model_.take_choices();  // those of a validation
  optimizer_->set_learning_rate(report.learning_rate);
  const StepNumbers step =
      compute_gradients(*strategy_, model_, *optimizer_, draw_micro_batches(), options_.clip);
  // Before the update, which needs no other rank: a step that any rank has finished, all can
  // finish.
  in_phase("loss of all ranks", [&] { report.loss = strategy_->average(step.loss); });
  report.step = steps_taken_ + 1;
  require(
      std::isfinite(report.loss),
      "the loss of step {} is {}: training has diverged; try a lower learning rate (it was {:.2g})",
      report.step, report.loss, report.learning_rate);
  in_phase("optimizer", [&] { strategy_->step(*optimizer_); });
  ++steps_taken_;
  report.gradient_norm = step.gradient_norm;
  if (const auto choices = model_.take_choices(); !choices.empty())
    report.busiest_expert =
        static_cast<double>(*std::max_element(choices.begin(), choices.end()) *
                            static_cast<std::int64_t>(choices.size())) /
        static_cast<double>(std::accumulate(choices.begin(), choices.end(), std::int64_t{0}));
  report.bits_per_byte =
      bits_per_byte(report.loss, training_.draw(steps_taken_ - 1, {0, options_.batch}));
  report.step_seconds = seconds_since(start);
  report.communication_seconds = strategy_->communication_seconds() - communicated_before;
  report.communication_by_axis = strategy_->communication_by_axis();
  for (std::size_t i = 0; i < by_axis_before.size(); ++i)
    report.communication_by_axis[i].second -= by_axis_before[i].second;
  report.tokens_per_second =
      static_cast<double>(options_.batch * options_.sequence) / report.step_seconds;
  if (observer_.after_step) observer_.after_step(report);
  return report;
}

// This rank's share of the batch, in micro-batches of the same size: the mean of their losses is
// the loss of the share.
std::vector<transformer::Batch> Trainer::draw_micro_batches() const {
  const transformer::Share share =
      transformer::share_of_batch(options_.batch, strategy_->data_rank(), strategy_->data_ranks());
  const std::int64_t parts = options_.accumulate, count = share.count / parts;
  const auto tokens = strategy_->tokens_of(options_.sequence);
  std::vector<transformer::Batch> micro_batches;
  for (std::int64_t part = 0; part < parts; ++part)
    micro_batches.push_back(
        training_.draw(steps_taken_, {share.first + part * count, count}, tokens));
  return micro_batches;
}

std::optional<double> Trainer::validate() {
  if (!validation_) return std::nullopt;
  const autograd::NoGrad no_grad;
  const std::int64_t windows = std::min(options_.validation_windows, validation_->windows());
  const std::int64_t rank = strategy_->data_rank(), ranks = strategy_->data_ranks();
  const std::int64_t first = windows * rank / ranks, end = windows * (rank + 1) / ranks;
  const std::int64_t at_once = options_.batch / ranks / options_.accumulate;
  // If a forward pass communicates, every rank must run as many as the rank with the largest share.
  const std::int64_t largest_share = (windows + ranks - 1) / ranks;

  const auto tokens = strategy_->tokens_of(options_.sequence);
  double sum = 0;  // of the losses of the windows
  for (std::int64_t done = 0; done < largest_share; done += at_once) {
    const transformer::Share share{first + done, std::min(at_once, end - first - done)};
    if (share.count > 0)
      sum += strategy_->loss_of(model_, validation_->consecutive(share, tokens)) *
             static_cast<double>(share.count);
    else if (strategy_->forward_communicates())
      (void)strategy_->loss_of(model_, validation_->consecutive({0, 1}, tokens));
  }
  const double nats_per_token =
      strategy_->average(sum) * static_cast<double>(ranks) / static_cast<double>(windows);
  return bits_per_byte(nats_per_token, validation_->consecutive({0, windows}));
}

// Total bits of all predicted tokens divided by their bytes, over all ranks. Every rank can draw
// the whole batch, so this needs no communication.
double Trainer::bits_per_byte(double nats_per_token, const transformer::Batch& whole) const {
  const double tokens = static_cast<double>(whole.target.size()),
               bytes = static_cast<double>(corpus_.vocabulary().bytes_of(whole.target));
  return nats_per_token / std::numbers::ln2 * (tokens / bytes);
}

}  // namespace ringside::training
