// `./exercise train 21`: the student's Zero3 as a strategy of ringside train.
#include "training/strategies/group_strategy.hpp"
#include "zero3.cpp"

using namespace ringside;

extern "C" training::MakeStrategy* const ringside_strategy =
    training::strategy_over<training::StageStrategy<student::zero::Zero3>>;
