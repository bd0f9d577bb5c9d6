// `./exercise train 20`: the student's Zero2 as a strategy of ringside train.
#include "gradient_shards.cpp"
#include "training/strategies/group_strategy.hpp"
#include "zero2.hpp"

using namespace ringside;

extern "C" training::MakeStrategy* const ringside_strategy =
    training::strategy_over<training::StageStrategy<student::zero::Zero2>>;
