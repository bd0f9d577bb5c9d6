// One rank's part in `ringside train`: from a plan to a trained model.
#pragma once

#include "cli/commands/train/training_plan.hpp"
#include "cli/pictures/report/recording.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/process_group.hpp"

namespace ringside::cli {

// Trains as one rank of `group`. Rank 0 prints to standard output and writes metrics, dumps and
// checkpoints; the other ranks are silent. Every rank must call it, on the thread that will
// compute.
void run_training(const TrainingPlan& plan, collectives::ProcessGroup& group, Recording& recording);

// Trains as one rank of an elastic run, whose members the launcher chooses. Every rank calls it.
void run_elastic_training(const TrainingPlan& plan, const collectives::RankInfo& rank_info);

}  // namespace ringside::cli
