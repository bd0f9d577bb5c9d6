// `./exercise train 15`: the student's Overlap as a strategy of ringside train.
#include "overlap.cpp"
#include "training/strategies/group_strategy.hpp"

using namespace ringside;

extern "C" training::MakeStrategy* const ringside_strategy =
    training::strategy_over<training::GroupStrategy<student::ddp::Overlap>>;
