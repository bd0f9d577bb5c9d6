// `./exercise train 17`: the student's Bucketed as a strategy of ringside train.
#include "bucket_queue.cpp"
#include "bucketed.cpp"
#include "gradient_buckets.cpp"
#include "training/strategies/group_strategy.hpp"

using namespace ringside;

extern "C" training::MakeStrategy* const ringside_strategy =
    training::strategy_over<training::GroupStrategy<student::ddp::Bucketed>>;
