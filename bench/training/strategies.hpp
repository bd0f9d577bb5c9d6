// The strategies that `ringside bench ddp` and `bench zero` compare. Each trains its own model, all
// on the same batch of their rank.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/training/step_bench.hpp"
#include "bench/training/step_options.hpp"
#include "planning/memory.hpp"

namespace ringside::cli {

// One strategy, as a table names it.
struct StrategyName {
  std::string strategy;             // "none": a step without communication
  std::optional<double> bucket_mb;  // if its bucket size is an option
  std::size_t group = 0;            // with which it communicates

  std::string text() const {
    return bucket_mb ? fmt::format("{} {:g} MB", strategy, *bucket_mb) : strategy;
  }
};

struct StrategyRow : StrategyName, StepFigures {
  double ratio = 0;  // to the step time of the first strategy
};

// Makes a contender of each strategy.
void add_strategies(StepBench& bench, const StepOptions& options,
                    std::span<collectives::ProcessGroup> groups,
                    const std::vector<StrategyName>& strategies);

// Measures them, after two steps of each to warm up. Throws Error if their losses differ.
std::vector<StrategyRow> measure_strategies(StepBench& bench, int steps,
                                            const std::vector<StrategyName>& strategies);

// The strategy as planning/ accounts for it.
planning::Plan plan_of_strategy(const StepOptions& options, const StrategyName& name, int ranks,
                                autograd::Device device);

// The memory of a rank on which the models of all strategies are at the same time.
planning::RankMemory memory_of_strategies(const StepOptions& options,
                                          const std::vector<StrategyName>& strategies, int ranks,
                                          autograd::Device device);

}  // namespace ringside::cli
