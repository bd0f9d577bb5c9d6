// `./exercise train 13`: the student's Naive as a strategy of ringside train.
#include "cli/training/group_strategy.hpp"
#include "naive.cpp"
#include "replicate.cpp"

using namespace ringside;

extern "C" cli::MakeStrategy* const ringside_strategy =
    cli::strategy_over<cli::GroupStrategy<student::ddp::Naive>>;
