#include "cli/training/mesh/mesh_plan.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.hpp"
#include "pipeline_parallel/generators/catalogue.hpp"
#include "pipeline_parallel/lower.hpp"
#include "pipeline_parallel/proof/verify.hpp"

namespace ringside::cli {

using parallel::Axis;
using transformer::Config;
using transformer::ModelPart;

std::string MeshPlan::text() const {
  return fmt::format("mesh {}{}{}", shape.text(), sequence_parallel ? ", sequence parallel" : "",
                     schedule_name.empty() ? "" : ", " + schedule_name);
}

void plan_schedule(MeshPlan& plan, const std::string& name, std::int64_t micro_batches,
                   int stages_per_rank) {
  const int ranks = plan.shape.size(Axis::pp);
  if (ranks == 1) return;
  const auto count = static_cast<int>(micro_batches);
  const auto computations = pipeline_parallel::make_schedule(name, ranks, count, stages_per_rank);
  const auto wrong = pipeline_parallel::verify(computations);
  if (!wrong.empty()) fail("the schedule {} is not right: {}", name, wrong.front());
  plan.schedule = pipeline_parallel::lower(computations);
  plan.schedule_name = name;
}

ModelPart part_of_rank(const MeshPlan& plan, const Config& config, int rank) {
  ModelPart part;
  part.tensor_rank = plan.shape.coordinate(rank, Axis::tp);
  part.tensor_ranks = plan.shape.size(Axis::tp);
  if (plan.shape.size(Axis::pp) == 1) return part;
  const int stages = plan.schedule.stages(), pipeline_rank = plan.shape.coordinate(rank, Axis::pp);
  require(stages > 0, "the mesh {} has no schedule for its pipeline", plan.shape.text());
  for (const int stage : pipeline_parallel::stages_of(plan.schedule, pipeline_rank)) {
    const auto layers = pipeline_parallel::layers_of_stage(config.layers, stages, stage);
    for (std::int64_t layer = layers.first; layer < layers.end; ++layer)
      part.layers.push_back(layer);
  }
  part.embedding = plan.schedule.rank_of.front() == pipeline_rank;
  part.head = plan.schedule.rank_of.back() == pipeline_rank;
  return part;
}

void require_divisible(const MeshPlan& plan, const Config& config,
                       const transformer::TrainerOptions& options, const std::string& strategy) {
  const int stages = plan.schedule.stages(), tensor_ranks = plan.shape.size(Axis::tp);
  transformer::require_divisible(config, tensor_ranks);
  require(stages <= config.layers,
          "{} layers cannot be divided among the {} stages of {} on {} pipeline ranks, which need "
          "one layer each: choose a smaller pp, fewer --stages-per-rank, or more --layers",
          config.layers, stages, plan.schedule_name, plan.schedule.ranks());
  require(!plan.sequence_parallel || tensor_ranks > 1,
          "--sequence-parallel divides sequences among tensor-parallel ranks, but --mesh {} has no "
          "tp: add tp=2, or leave out --sequence-parallel",
          plan.shape.text());
  require(!plan.sequence_parallel || options.sequence % tensor_ranks == 0,
          "sequences of {} tokens cannot be divided among {} tensor-parallel ranks: choose a "
          "--sequence that is a multiple of {}, or leave out --sequence-parallel",
          options.sequence, tensor_ranks, tensor_ranks);
  require(!plan.divides_model() || strategy != "zero1_broadcast",
          "--parallel zero1_broadcast gives every parameter one owner, and ranks that share a "
          "matrix could choose different ones: use zero1 on --mesh {}",
          plan.shape.text());
  require(strategy != "single" || plan.data_ranks() == 1,
          "--parallel single trains one copy of the model, but --mesh {} has {}: choose another "
          "strategy",
          plan.shape.text(), plan.data_ranks());
}

namespace {

// How many micro-batches of the last stage are between their forward and their backward, and
// whether backward is split.
void keep_heads(const pipeline_parallel::Schedule& schedule, int rank, transformer::Held& held) {
  using pipeline_parallel::Kind;
  int now = 0, most = 1;
  for (const pipeline_parallel::Action& action : schedule.actions[rank]) {
    if (action.kind == Kind::backward_weight) held.splits_backward = true;
    if (action.stage + 1 != schedule.stages()) continue;
    if (action.kind == Kind::forward) most = std::max(most, ++now);
    if (action.kind == Kind::backward || action.kind == Kind::backward_input) --now;
  }
  held.heads_kept = most;
}

}  // namespace

transformer::MemoryNeed memory_on_rank(const MeshPlan& plan, const Config& config,
                                       const transformer::TrainerOptions& options,
                                       autograd::DType dtype, int rank,
                                       transformer::Held of_strategy) {
  of_strategy.part = part_of_rank(plan, config, rank);
  of_strategy.divides_sequence = plan.sequence_parallel;
  if (plan.schedule.stages() > 0) {
    const int pipeline_rank = plan.shape.coordinate(rank, Axis::pp);
    keep_heads(plan.schedule, pipeline_rank, of_strategy);
    of_strategy.micro_batches_kept =
        static_cast<double>(pipeline_parallel::most_in_flight(plan.schedule)[pipeline_rank]) /
        static_cast<double>(pipeline_parallel::stages_of(plan.schedule, pipeline_rank).size());
  }
  return transformer::memory_needed(config, options, dtype, plan.data_ranks(), of_strategy);
}

transformer::MemoryNeed memory_of_stage(const MeshPlan& plan, const Config& config,
                                        const transformer::TrainerOptions& options,
                                        autograd::DType dtype, int stage,
                                        const transformer::Held& of_strategy) {
  transformer::MemoryNeed largest;
  for (const int rank : plan.shape.model_members(0)) {
    if (plan.shape.coordinate(rank, Axis::pp) != stage) continue;
    const auto need = memory_on_rank(plan, config, options, dtype, rank, of_strategy);
    if (need.total() > largest.total()) largest = need;
  }
  return largest;
}

transformer::MemoryNeed memory_on_largest_rank(const MeshPlan& plan, const Config& config,
                                               const transformer::TrainerOptions& options,
                                               autograd::DType dtype,
                                               const transformer::Held& of_strategy) {
  transformer::MemoryNeed largest;
  for (int stage = 0; stage < plan.shape.size(Axis::pp); ++stage) {
    const auto need = memory_of_stage(plan, config, options, dtype, stage, of_strategy);
    if (need.total() > largest.total()) largest = need;
  }
  return largest;
}

}  // namespace ringside::cli
