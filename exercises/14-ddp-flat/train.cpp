// `./exercise train 14`: the student's Flat as a strategy of ringside train.
#include "cli/training/group_strategy.hpp"
#include "flat.cpp"

using namespace ringside;

extern "C" cli::MakeStrategy* const ringside_strategy =
    cli::strategy_over<cli::GroupStrategy<student::ddp::Flat>>;
