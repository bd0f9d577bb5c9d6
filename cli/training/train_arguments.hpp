// The arguments of `ringside train`, and the plan of the run that follows from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/launcher/ranks.hpp"
#include "cli/training/device_option.hpp"
#include "cli/training/training_plan.hpp"
#include "ddp/bucketed.hpp"
#include "transformer/inference/generation.hpp"

namespace ringside::cli {

// An empty optional is an option that was not given: plan_from() chooses the default, or a resumed
// run keeps its value.
struct TrainArguments {
  RanksOption ranks;
  DeviceOption device;
  std::optional<std::string> model, init, resume, strategy, mesh, schedule, dtype, optimizer,
      tokenizer;
  std::optional<std::int64_t> d_model, layers, heads, kv_heads, d_ff, vocabulary, sequence;
  std::optional<std::int64_t> steps, stop_at, batch, accumulate, warmup, eval_batches, save_every;
  std::optional<double> learning_rate, min_learning_rate, clip, weight_decay;
  std::optional<std::uint64_t> seed;
  std::optional<int> threads, stages_per_rank;
  double bucket_mb = ddp::Bucketed::default_bucket_mb;
  bool tied_head = false, checkpoint_activations = false, sequence_parallel = false,
       overwrite = false;
  std::vector<std::string> data;
  std::string metrics, dump, save, trace, trace_steps, report;
  std::string go_on;  // the command that continues this run once it is saved
  std::int64_t validate_every = 0;
  std::optional<double> memory_limit_gb;
  std::int64_t sample_tokens = 0, sample_every = 0;
  transformer::SampleOptions sample;
};

// The plan for so many ranks. Throws UsageError if the arguments contradict each other, and Error
// if a checkpoint or a tokenizer does not fit.
TrainingPlan plan_from(const TrainArguments& args, int ranks, int ranks_on_this_machine);

}  // namespace ringside::cli
