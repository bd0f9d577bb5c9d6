#include "cli/training/mesh/mesh_plan.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace ringside::cli {

using parallel::Axis;
using parallel::MeshShape;
using transformer::Config;
using transformer::ModelPart;

std::string MeshPlan::text() const {
  return fmt::format("mesh {}{}", shape.text(), sequence_parallel ? ", sequence parallel" : "");
}

ModelPart part_of_rank(const MeshShape& shape, const Config& config, int rank) {
  ModelPart part;
  part.tensor_rank = shape.coordinate(rank, Axis::tp);
  part.tensor_ranks = shape.size(Axis::tp);
  const std::int64_t stage = shape.coordinate(rank, Axis::pp), stages = shape.size(Axis::pp);
  if (stages == 1) return part;
  // The first stages get one layer more.
  const std::int64_t each = config.layers / stages, more = config.layers % stages;
  const std::int64_t first = stage * each + std::min(stage, more);
  for (std::int64_t layer = first; layer < first + each + (stage < more ? 1 : 0); ++layer)
    part.layers.push_back(layer);
  part.embedding = stage == 0;
  part.head = stage == stages - 1;
  return part;
}

void require_divisible(const MeshPlan& plan, const Config& config,
                       const transformer::TrainerOptions& options, const std::string& strategy) {
  const int stages = plan.shape.size(Axis::pp), tensor_ranks = plan.shape.size(Axis::tp);
  transformer::require_divisible(config, tensor_ranks);
  require(stages <= config.layers,
          "{} layers cannot be divided among {} pipeline stages: choose a pp of at most {}",
          config.layers, stages, config.layers);
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

transformer::Held held_by_rank(const MeshPlan& plan, const Config& config, int rank,
                               transformer::Held of_strategy) {
  of_strategy.part = part_of_rank(plan.shape, config, rank);
  of_strategy.divides_sequence = plan.sequence_parallel;
  return of_strategy;
}

}  // namespace ringside::cli
