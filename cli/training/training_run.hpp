// One rank's part in `ringside train`: from a plan to a trained model.
#pragma once

#include <memory>

#include "cli/report/recording.hpp"
#include "cli/training/training_plan.hpp"
#include "collectives/process_group.hpp"
#include "transformer/parallel_strategy.hpp"

namespace ringside::cli {

// Trains as one rank of `group`. Rank 0 prints to standard output and writes metrics, dumps and
// checkpoints; the other ranks are silent. Every rank must call it, on the thread that will
// compute.
void run_training(const TrainingPlan& plan, collectives::ProcessGroup& group,
                  std::unique_ptr<transformer::ParallelStrategy> strategy, Recording& recording);

}  // namespace ringside::cli
