#include "training/run_plan.hpp"

#include <algorithm>

#include "training/strategies/parallel_strategies.hpp"

namespace ringside::training {

planning::Plan run_plan(const TrainerOptions& options, autograd::DType dtype,
                        autograd::Device device, int data_ranks, const std::string& strategy,
                        double bucket_mb, const MeshPlan* mesh) {
  const std::int64_t in_step = std::max<std::int64_t>(1, data_ranks * options.accumulate);
  planning::Plan plan{.mesh = parallel::MeshShape().with(parallel::Axis::dp, data_ranks),
                      .micro_batch = (options.batch + in_step - 1) / in_step,
                      .micro_batches = options.accumulate,
                      .sequence = options.sequence,
                      .types = planning::types_of(dtype),
                      .bucket_bytes = bucket_mb * 1e6,
                      .device = device};
  plan.types.adamw = options.optimizer == OptimizerKind::adamw;
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
  if (is_strategy_library(strategy)) return plan;
  if (strategy == "flat") plan.gradient_copies = 2;
  // What ddp/fewer_bytes/ holds beside the gradients.
  if (strategy == "bf16_wire")  // errors, those of this rank's block, and two buffers of bf16
    plan.gradient_copies =
        2 + 1.0 / static_cast<double>(plan.state_ranks()) + 2 * 2 / plan.types.gradients;
  if (strategy.starts_with("powersgd")) plan.gradient_copies = 2;   // errors
  if (strategy.starts_with("local_sgd")) plan.gradient_copies = 2;  // the mean of the replicas
  if (strategy.starts_with("diloco")) plan.gradient_copies = 4;     // and theta and v
  if (strategy.starts_with("zero")) plan.zero = strategy[4] - '0';
  return plan;
}

}  // namespace ringside::training
