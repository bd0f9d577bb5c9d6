// `./exercise train 21`: the student's ShardedParameters as a strategy of ringside train.
#include "stage3_parameters.cpp"
#include "training/strategies/group_strategy.hpp"

using namespace ringside;

extern "C" training::MakeStrategy* const ringside_strategy =
    training::strategy_over<training::StageStrategy<student::zero::ShardedParameters>>;
