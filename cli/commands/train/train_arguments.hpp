// The arguments of `ringside train`, and the plan of the run that follows from them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/commands/train/elastic_option.hpp"
#include "cli/commands/train/training_plan.hpp"
#include "cli/launcher/ranks.hpp"
#include "cli/options/cli11_names.hpp"
#include "cli/options/context_options.hpp"
#include "cli/options/device_option.hpp"

namespace ringside::cli {

struct TrainArguments {
  RanksOption ranks;
  ElasticOption elastic;
  DeviceOption device;
  // The command line fills the plan directly. plan_from() chooses what was not given, or a resumed
  // run keeps its value.
  TrainingPlan plan;
  std::set<std::string> given;  // the names of the options: "--lr"
  std::optional<std::string> model, init, resume, mesh, tensor_library, schedule, dtype, optimizer,
      tokenizer, trace_steps, recompute;
  std::optional<std::int64_t> eval_batches;
  std::optional<int> threads, stages_per_rank;
  bool sequence_parallel = false, accept_changes = false;
  ContextArguments context;

  bool has(const std::string& option) const { return given.contains(option); }
};

// The plan for so many ranks. `elastic`: between which sizes an elastic run stays. Throws
// UsageError if the arguments contradict each other, and Error if a checkpoint or a tokenizer does
// not fit.
TrainingPlan plan_from(const TrainArguments& args, int ranks, int ranks_on_this_machine,
                       const std::optional<training::ElasticSizes>& elastic = {});

}  // namespace ringside::cli
