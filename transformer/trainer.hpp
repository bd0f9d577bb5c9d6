// Training: the loop that everything else in this program is for.
//
//     for every step:  this rank's share of the batch ── forward ── backward ── form.finish_gradients ── clip ── update
//
// It prints nothing: whoever wants to see how it goes on (a progress line, a file of metrics, a
// test that looks at every gradient) gives it an Observer. It knows of other ranks only through
// ParallelStrategy.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>

#include "autograd/optim/optimizer.hpp"
#include "transformer/data/batches.hpp"
#include "transformer/data/corpus.hpp"
#include "transformer/learning_rate.hpp"
#include "transformer/model.hpp"
#include "transformer/parallel_strategy.hpp"

namespace ringside::transformer {

enum class OptimizerKind { sgd, adamw };

struct TrainerOptions {
  std::int64_t steps = 100;
  std::int64_t batch = 16;  // sequences per step, over ALL ranks
  std::int64_t accumulate =
      1;  // micro-batches, one after the other, in which a rank works off its share of the batch
  std::int64_t sequence = 128;  // tokens of each, at most the model's
  std::uint64_t seed = 0;       // of the batches
  OptimizerKind optimizer = OptimizerKind::adamw;
  double learning_rate = 3e-3;  // at its peak; see learning_rate.hpp
  double min_learning_rate = 3e-4;
  std::int64_t warmup = 0;              // steps
  bool checkpoint_activations = false;  // see Model::set_checkpoint_activations
  double clip = 1;                      // longest gradient, as the norm over all parameters; 0: any
  // Only on the matrices of the blocks and an untied head: a norm's weight or a token's vector has
  // no reason to be drawn to zero.
  double weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95;      // AdamW's; 0.95 as in Llama (section 2.3)
  std::int64_t validate_every = 0;       // steps between examinations; 0: none on the way
  std::int64_t validation_windows = 64;  // most sequences of an examination, over all ranks
};

// Throws Error with one sentence if no run with these options could start: also what the command
// line calls before it starts ranks.
void validate(const TrainerOptions& options, const Config& config, const Corpus& corpus, int ranks);
void validate(const TrainerOptions& options, const Config& config, int ranks);  // all but the text

// What happened in one step, the same on every rank but for the times.
struct StepReport {
  std::int64_t step = 0;     // counted from 1
  double loss = 0;           // before the update, mean over the whole batch, nats per token
  double bits_per_byte = 0;  // the same for each byte that the foretold tokens stand for:
                             // comparable whatever the vocabulary
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  double step_seconds = 0;
  double communication_seconds = 0;  // of these, spent waiting for other ranks
  double tokens_per_second = 0;      // of all ranks together
};

// Called by the trainer, on every rank, where set.
struct Observer {
  std::function<void(const StepReport&)>
      after_step;  // parameters are updated, gradients, as they were before clipping, still there
  std::function<void(std::int64_t step, double bits_per_byte)> after_validation;
};

class Trainer {
 public:
  // Model, corpus and form must outlive the trainer. Checks with validate() above, then has the
  // form prepare the model. Throws Error if the ranks' texts or tokenizers differ: each would find
  // its share of the batch in another book.
  Trainer(Model& model, const Corpus& corpus, ParallelStrategy& strategy,
          const TrainerOptions& options, Observer observer = {});

  // All steps that are left, with examinations on the way; with `stop_at`, only up to that step.
  void run(std::int64_t stop_at = std::numeric_limits<std::int64_t>::max());

  StepReport step();  // one step
  std::int64_t steps_taken() const { return steps_taken_; }

  // For checkpoints (training_state.hpp).
  const TrainerOptions& options() const { return options_; }
  const autograd::Optimizer& optimizer() const { return *optimizer_; }
  autograd::Optimizer& optimizer() { return *optimizer_; }
  const ParallelStrategy& strategy() const { return strategy_; }
  const Corpus& corpus() const { return corpus_; }
  void resume_at(std::int64_t steps_taken);  // throws Error if no step would be left
  // Every rank must call it. Throws Error, "the ranks do not all read `what`", unless all give the
  // same integer below 2^32.
  void require_same_everywhere(double integer, const char* what);

  // Bits per byte on held-out text: over the same windows whatever the number of ranks, which share
  // them out. Nothing if the held-out part is too short for one sequence. Every rank must call it,
  // and all get the same value.
  std::optional<double> validate();

 private:
  double accumulate_gradients();
  autograd::Tensor loss_of(const Batch& batch) const;
  double bits_per_byte(double nats_per_token, const Batch& whole) const;

  Model& model_;
  const Corpus& corpus_;
  ParallelStrategy& strategy_;
  TrainerOptions options_;
  Observer observer_;
  LearningRate learning_rate_;
  Batches training_;
  std::optional<Batches> validation_;
  std::unique_ptr<autograd::Optimizer> optimizer_;
  std::int64_t steps_taken_ = 0;
};

}  // namespace ringside::transformer
