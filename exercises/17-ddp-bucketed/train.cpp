// `./exercise train 17`: the student's Bucketed as a strategy of ringside train.
#include "bucket_queue.cpp"
#include "bucketed.cpp"
#include "cli/training/group_strategy.hpp"
#include "gradient_buckets.cpp"

using namespace ringside;

extern "C" cli::MakeStrategy* const ringside_strategy =
    cli::strategy_over<cli::GroupStrategy<student::ddp::Bucketed, double>>;
