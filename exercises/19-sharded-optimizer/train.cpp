// `./exercise train 19`: the student's Zero1Broadcast as a strategy of ringside train.
#include "ddp/bucketed.hpp"
#include "training/strategies/group_strategy.hpp"
#include "zero1_broadcast.cpp"

using namespace ringside;

extern "C" training::MakeStrategy* const ringside_strategy =
    training::strategy_over<training::OwnerStrategy<student::zero::Zero1Broadcast, ddp::Bucketed>>;
