#include "planning/run_plan.hpp"

#include <algorithm>

#include "training/strategies/parallel_strategies.hpp"

namespace ringside::planning {

Plan run_plan(const training::TrainerOptions& options, autograd::DType dtype,
              autograd::Device device, int data_ranks, const std::string& strategy,
              double bucket_mb, const training::MeshPlan* mesh) {
  const std::int64_t in_step = std::max<std::int64_t>(1, data_ranks * options.accumulate);
  Plan plan{.mesh = parallel::MeshShape().with(parallel::Axis::dp, data_ranks),
            .micro_batch = (options.batch + in_step - 1) / in_step,
            .micro_batches = options.accumulate,
            .sequence = options.sequence,
            .types = types_of(dtype),
            .bucket_bytes = bucket_mb * 1e6,
            .device = device};
  plan.types.adamw = options.optimizer == training::OptimizerKind::adamw;
  plan.recompute = options.recompute;
  if (mesh) {
    plan.mesh = mesh->shape;
    plan.sequence_parallel = mesh->sequence_parallel;
    plan.context = mesh->context;
  }
  if (mesh && mesh->schedule.stages() > 0) {
    plan.schedule = mesh->schedule_name;
    plan.chunks = mesh->schedule.stages() / mesh->schedule.ranks();
  }
  plan.gradient_copies = training::gradient_copies(strategy, dtype, plan.state_ranks());
  if (strategy.starts_with("zero") && !training::is_strategy_library(strategy))
    plan.zero = strategy[4] - '0';
  return plan;
}

}  // namespace ringside::planning
