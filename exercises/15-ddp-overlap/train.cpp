// `./exercise train 15`: the student's Overlap as a strategy of ringside train.
#include "cli/training/group_strategy.hpp"
#include "overlap.cpp"

using namespace ringside;

extern "C" cli::MakeStrategy* const ringside_strategy =
    cli::strategy_over<cli::GroupStrategy<student::ddp::Overlap>>;
