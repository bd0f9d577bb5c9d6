// `./exercise train 14`: the student's Flat as a strategy of ringside train.
#include "flat.cpp"
#include "training/strategies/group_strategy.hpp"

using namespace ringside;

extern "C" training::MakeStrategy* const ringside_strategy =
    training::strategy_over<training::GroupStrategy<student::ddp::Flat>>;
