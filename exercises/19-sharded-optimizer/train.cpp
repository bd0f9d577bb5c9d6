// `./exercise train 19`: the student's ShardedOptimizer as a strategy of ringside train.
#include "ddp/bucketed.hpp"
#include "stage1_broadcast.cpp"
#include "training/strategies/group_strategy.hpp"

using namespace ringside;

extern "C" training::MakeStrategy* const ringside_strategy = training::strategy_over<
    training::OwnerStrategy<student::zero::ShardedOptimizer, ddp::Bucketed>>;
