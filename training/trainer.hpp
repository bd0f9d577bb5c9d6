// Trainer: the training loop.
//
//     each step    draw this rank's share of the batch
//                  compute_gradients          forward, backward, gradients of the whole batch,
//                                             clipping (step.hpp)
//                  average the loss over ranks
//                  new parameters, report
//
// It prints nothing. An Observer receives each report: a progress line, a metrics file, a test that
// reads every gradient. It knows of other ranks only through ParallelStrategy.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "autograd/optim/optimizer.hpp"
#include "training/learning_rate.hpp"
#include "training/strategies/parallel_strategy.hpp"
#include "transformer/data/batches.hpp"
#include "transformer/data/corpus.hpp"
#include "transformer/model.hpp"

namespace ringside::training {

enum class OptimizerKind { sgd, adamw };

struct TrainerOptions {
  std::int64_t steps = 100;
  std::int64_t batch = 16;      // sequences per step, over ALL ranks
  std::int64_t accumulate = 1;  // micro-batches into which a rank divides its share of the batch
  std::int64_t sequence = 128;  // tokens per sequence; at most the model's
  std::uint64_t seed = 0;       // of the batches
  OptimizerKind optimizer = OptimizerKind::adamw;
  double learning_rate = 3e-3;  // the peak; see learning_rate.hpp
  double min_learning_rate = 3e-4;
  std::int64_t warmup = 0;                      // steps
  transformer::RecomputeGroups recompute = {};  // see Model::set_recompute
  double clip = 1;  // largest norm of all gradients together; 0: no clipping
  // Applies to the matrices of the blocks and to an untied head only. Norm weights and token
  // embeddings have no reason to shrink towards zero.
  double weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95;      // of AdamW; 0.95 as in Llama (section 2.3)
  std::int64_t validate_every = 0;       // steps between validations; 0: never during the run
  std::int64_t validation_windows = 64;  // most sequences per validation, over all ranks

  LearningRate rates() const { return {learning_rate, min_learning_rate, warmup, steps}; }
};

// Throws Error with one sentence if a run with these options cannot start. The command line calls
// it before it starts ranks. Without a corpus it checks everything but the text.
void validate(const TrainerOptions& options, const transformer::Config& config,
              const transformer::Corpus& corpus, int data_ranks);
void validate(const TrainerOptions& options, const transformer::Config& config, int data_ranks);

// The result of one step. All but the times are the same on every rank.
struct StepReport {
  std::int64_t step = 0;     // counted from 1
  double loss = 0;           // before the update: mean over the whole batch, nats per token
  double bits_per_byte = 0;  // see Trainer::validate
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;  // of this step
  // How often the busiest expert was chosen, relative to the mean of all experts: of the tokens and
  // blocks of this rank, so not the same everywhere; 0 without experts.
  double busiest_expert = 0;
  double step_seconds = 0;           // of the whole step
  double communication_seconds = 0;  // part of step_seconds: waiting for other ranks
  std::vector<SecondsAlong> communication_by_axis = {};  // the same by the axes of a mesh
  double tokens_per_second = 0;                          // of all ranks together
  // Who has taken part, by their numbers in the job, in the order of their ranks. Only of an
  // elastic run (elastic/); a caller of the trainer fills it in.
  std::vector<int> members = {};
};

// Functions that the trainer calls on every rank. Empty ones are skipped.
struct Observer {
  // After each step. The parameters are updated; the gradients are still there, unclipped.
  std::function<void(const StepReport&)> after_step = {};
  std::function<void(std::int64_t step, double bits_per_byte)> after_validation = {};
  // Whether the run should end after this step. If it is true on one rank, run() returns after the
  // same step on all of them. All ranks have this function, or none.
  std::function<bool()> interrupted = {};
};

class Trainer {
 public:
  // `model`, `corpus` and `strategy` must outlive the trainer. Validates the options and prepares
  // the model for the strategy. Throws Error if the ranks have different texts or tokenizers.
  Trainer(transformer::Model& model, const transformer::Corpus& corpus, ParallelStrategy& strategy,
          const TrainerOptions& options, Observer observer = {});

  // Runs the remaining steps, or those up to `stop_at`, with validations in between. Returns early
  // if the observer is interrupted.
  void run(std::int64_t stop_at = std::numeric_limits<std::int64_t>::max());

  // Runs one step. Throws Error if the loss is not finite.
  StepReport step();
  std::int64_t steps_taken() const { return steps_taken_; }

  // Bits per byte on the held-out text: the total loss in bits, divided by the bytes of the
  // predicted tokens. Unlike nats per token, it compares runs with different tokenizers.
  //
  // The ranks divide the windows among them, so the windows do not depend on their number. Every
  // rank must call this, and all get the same value. Empty if the held-out text is too short for
  // one sequence.
  std::optional<double> validate();

  // For checkpoints (state/training_state.hpp).
  const TrainerOptions& options() const { return options_; }
  const autograd::Optimizer& optimizer() const { return *optimizer_; }
  autograd::Optimizer& optimizer() { return *optimizer_; }
  const ParallelStrategy& strategy() const { return *strategy_; }
  const transformer::Model& model() const { return model_; }
  const transformer::Corpus& corpus() const { return corpus_; }
  void resume_at(std::int64_t steps_taken);  // throws Error if no steps remain

  // Goes on with other ranks, after step `steps_taken` (elastic/). Their parameters become those of
  // rank 0; the optimizer keeps its state. The hooks of the strategy before must be gone. Neither
  // strategy may shard anything.
  void change_strategy(ParallelStrategy& strategy, std::int64_t steps_taken);

  // Throws Error, "the ranks do not all read `what`", unless every rank passes the same integer,
  // which must be below 2^32. Every rank must call it.
  void require_same_everywhere(double integer, const char* what);

 private:
  void prepare();
  std::vector<transformer::Batch> draw_micro_batches() const;
  bool any_rank_is_interrupted();
  double bits_per_byte(double nats_per_token, const transformer::Batch& whole) const;

  transformer::Model& model_;
  const transformer::Corpus& corpus_;
  ParallelStrategy* strategy_;
  TrainerOptions options_;
  Observer observer_;
  LearningRate learning_rate_;
  transformer::Batches training_;
  std::optional<transformer::Batches> validation_;
  std::unique_ptr<autograd::Optimizer> optimizer_;
  std::int64_t steps_taken_ = 0;
};

}  // namespace ringside::training
