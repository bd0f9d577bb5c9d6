#include "bench/training/strategies.hpp"

#include <algorithm>

#include "ddp/bucketed.hpp"
#include "planning/run_plan.hpp"
#include "training/strategies/parallel_strategies.hpp"
#include "training/strategies/single_process.hpp"

namespace ringside::cli {
namespace {

constexpr int warmup_steps = 2;

double bucket_mb_of(const StrategyName& name) {
  return name.bucket_mb.value_or(ddp::Bucketed::default_bucket_mb);
}

}  // namespace

void add_strategies(StepBench& bench, const StepOptions& options,
                    std::span<collectives::ProcessGroup> groups,
                    const std::vector<StrategyName>& strategies) {
  const transformer::Batch batch =
      options.sequences(groups[0].rank() * options.batch, options.batch);
  for (const StrategyName& name : strategies) {
    collectives::ProcessGroup& group = groups[name.group];
    std::unique_ptr<training::ParallelStrategy> strategy;
    if (name.strategy == "none")
      strategy = std::make_unique<training::SingleProcess>();
    else
      strategy = training::make_strategy(name.strategy, group, bucket_mb_of(name));
    bench.add(std::move(strategy), {batch}, group, training::steps_of_round(name.strategy));
  }
}

std::vector<StrategyRow> measure_strategies(StepBench& bench, int steps,
                                            const std::vector<StrategyName>& strategies) {
  bench.warm_up(warmup_steps);
  const std::vector<StepFigures> figures = bench.measure(steps);
  std::vector<StrategyRow> rows;
  std::vector<std::pair<std::string, double>> losses;
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    rows.push_back({strategies[i], figures[i], figures[i].step_seconds / figures[0].step_seconds});
    if (strategies[i].strategy != "none" && !training::is_lossy(strategies[i].strategy))
      losses.emplace_back(rows[i].text(), bench.loss(i));
  }
  require_equal_losses(losses);
  return rows;
}

planning::Plan plan_of_strategy(const StepOptions& options, const StrategyName& name, int ranks,
                                autograd::Device device) {
  training::TrainerOptions training;
  training.batch = options.batch * ranks, training.sequence = options.sequence;
  return planning::run_plan(training, autograd::dtype_named(options.dtype), device, ranks,
                            name.strategy, bucket_mb_of(name));
}

planning::RankMemory memory_of_strategies(const StepOptions& options,
                                          const std::vector<StrategyName>& strategies, int ranks,
                                          autograd::Device device) {
  const auto model = planning::model_from(options.config(), options.model);
  planning::RankMemory all;
  double activations = 0;
  for (const StrategyName& name : strategies) {
    const auto need =
        planning::memory_of_rank(model, plan_of_strategy(options, name, ranks, device), 0);
    for (const planning::MemoryRow& row : need.rows)
      if (row.counted != autograd::MemoryKind::activations) all.rows.push_back(row);
    activations = std::max(activations, need.of(autograd::MemoryKind::activations));
  }
  all.rows.push_back({"activations", autograd::MemoryKind::activations, activations});
  return all;
}

}  // namespace ringside::cli
