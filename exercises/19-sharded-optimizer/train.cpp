// `./exercise train 19`: the student's ShardedOptimizer as a strategy of ringside train.
#include "cli/training/group_strategy.hpp"
#include "ddp/bucketed.hpp"
#include "stage1_broadcast.cpp"

using namespace ringside;

extern "C" cli::MakeStrategy* const ringside_strategy =
    cli::strategy_over<cli::OwnerStrategy<student::zero::ShardedOptimizer, ddp::Bucketed, double>>;
