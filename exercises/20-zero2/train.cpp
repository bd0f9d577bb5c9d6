// `./exercise train 20`: the student's ShardedGradients as a strategy of ringside train.
#include "cli/training/group_strategy.hpp"
#include "gradient_shards.cpp"
#include "stage2_gradients.hpp"

using namespace ringside;

extern "C" cli::MakeStrategy* const ringside_strategy =
    cli::strategy_over<cli::StageStrategy<student::zero::ShardedGradients, double, ddp::Alone>>;
