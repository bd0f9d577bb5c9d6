// `./exercise train 21`: the student's ShardedParameters as a strategy of ringside train.
#include "cli/training/group_strategy.hpp"
#include "stage3_parameters.cpp"

using namespace ringside;

extern "C" cli::MakeStrategy* const ringside_strategy =
    cli::strategy_over<cli::StageStrategy<student::zero::ShardedParameters, ddp::Alone>>;
