// `./exercise train 20`: the student's ShardedGradients as a strategy of ringside train.
#include "gradient_shards.cpp"
#include "stage2_gradients.hpp"
#include "training/strategies/group_strategy.hpp"

using namespace ringside;

extern "C" training::MakeStrategy* const ringside_strategy =
    training::strategy_over<training::StageStrategy<student::zero::ShardedGradients>>;
