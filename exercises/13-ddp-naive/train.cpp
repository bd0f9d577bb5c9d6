// `./exercise train 13`: the student's Naive as a strategy of ringside train.
#include "naive.cpp"
#include "replicate.cpp"
#include "training/strategies/group_strategy.hpp"

using namespace ringside;

extern "C" training::MakeStrategy* const ringside_strategy =
    training::strategy_over<training::GroupStrategy<student::ddp::Naive>>;
