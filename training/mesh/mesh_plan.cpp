#include "training/mesh/mesh_plan.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "parallel/pipeline/lower.hpp"
#include "parallel/pipeline/proof/verify.hpp"
#include "training/strategies/parallel_strategies.hpp"

namespace ringside::training {

using parallel::Axis;
using transformer::Config;
using transformer::ModelPart;

std::string MeshPlan::text() const {
  std::string text = fmt::format("mesh {}", shape.text());
  if (sequence_parallel) text += ", sequence parallel";
  if (!schedule_name.empty()) text += ", " + schedule_name;
  if (shape.size(Axis::cp) > 1)
    text += fmt::format(", {}, {} order", name_of(context.exchange), name_of(context.order));
  return text;
}

bool MeshPlan::divides_model() const {
  return std::ranges::any_of(parallel::all_axes(), [&](const parallel::AxisEntry& entry) {
    return entry.divides_model() && shape.size(entry.axis) > 1;
  });
}

GradientAxes gradient_axes(const parallel::MeshShape& shape) {
  if (shape.size(Axis::fsdp) > 1) return {{Axis::fsdp, Axis::cp}, Axis::dp};
  return {{Axis::dp, Axis::cp}, Axis::fsdp};
}

void plan_schedule(MeshPlan& plan, const std::string& name, std::int64_t micro_batches,
                   int stages_per_rank) {
  const int ranks = plan.shape.size(Axis::pp);
  if (ranks == 1) return;
  require(micro_batches <= 65'536, "{} micro-batches are too many: at most 65536", micro_batches);
  const auto count = static_cast<int>(micro_batches);
  const auto computations = pipeline_parallel::make_schedule(name, ranks, count, stages_per_rank);
  const auto wrong = pipeline_parallel::verify(computations);
  if (!wrong.empty()) fail("the schedule {} is not right: {}", name, wrong.front());
  plan.schedule = pipeline_parallel::lower(computations);
  plan.schedule_name = name;
  plan.stages_per_rank = plan.schedule.stages() / ranks;
}

ModelPart part_of_rank(const MeshPlan& plan, const Config& config, int rank) {
  ModelPart part;
  part.tensor_rank = plan.shape.coordinate(rank, Axis::tp);
  part.tensor_ranks = plan.shape.size(Axis::tp);
  part.expert_rank = plan.shape.coordinate(rank, Axis::ep);
  part.expert_ranks = plan.shape.size(Axis::ep);
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

void require_divisible(const MeshPlan& plan, const Config& config, const TrainerOptions& options,
                       const std::string& strategy) {
  const int stages = plan.schedule.stages(), tensor_ranks = plan.shape.size(Axis::tp);
  transformer::require_divisible(config, tensor_ranks);
  transformer::require_experts_divisible(config, plan.shape.size(Axis::ep));
  require(!plan.sequence_parallel || config.experts == 0,
          "--sequence-parallel does not work with experts: their router sees all tokens of a "
          "tensor-parallel rank; leave it out");
  require(stages <= config.layers,
          "{} layers cannot be divided among the {} stages of {} on {} pipeline ranks, which need "
          "one layer each: choose a smaller pp, fewer --stages-per-rank, or more --layers",
          config.layers, stages, plan.schedule_name, plan.schedule.ranks());
  require(!plan.sequence_parallel || tensor_ranks > 1,
          "--sequence-parallel divides sequences among tensor-parallel ranks, but --mesh {} has no "
          "tp: add tp=2, or leave out --sequence-parallel",
          plan.shape.text());
  const int context_ranks = plan.shape.size(Axis::cp);
  context_parallel::require_divisible(plan.context, context_ranks, options.sequence,
                                      config.heads / tensor_ranks,
                                      std::max<std::int64_t>(1, config.kv_heads / tensor_ranks));
  require(!plan.sequence_parallel || options.sequence / context_ranks % tensor_ranks == 0,
          "sequences of {} tokens cannot be divided among {} tensor-parallel ranks: choose a "
          "--sequence that is a multiple of {}, or leave out --sequence-parallel",
          options.sequence / context_ranks, tensor_ranks, tensor_ranks * context_ranks);
  require(!plan.divides_model() || strategy != "zero1_broadcast",
          "--parallel zero1_broadcast gives every parameter one owner, and ranks that share a "
          "matrix could choose different ones: use zero1 on --mesh {}",
          plan.shape.text());
  require(strategy != "single" || plan.gradient_ranks() == 1,
          "--parallel single trains one copy of the model, but --mesh {} has {}: choose another "
          "strategy",
          plan.shape.text(), plan.gradient_ranks());
  require(steps_of_round(strategy) == 1 || plan.gradient_ranks() == plan.shape.size(Axis::dp),
          "--parallel {} lets the ranks of dp update their replicas apart, but in --mesh {} the "
          "gradients of cp or ep come together in every step: choose another strategy, or leave "
          "out these axes",
          strategy, plan.shape.text());
  require(plan.shape.size(Axis::fsdp) == 1 || is_strategy_library(strategy) ||
              strategy == "zero1" || strategy == "zero2" || strategy == "zero3",
          "the ranks of fsdp in --mesh {} shard the state, and --parallel {} shards nothing: "
          "choose zero1, zero2 or zero3, or name the axis dp",
          plan.shape.text(), strategy);
}

}  // namespace ringside::training
