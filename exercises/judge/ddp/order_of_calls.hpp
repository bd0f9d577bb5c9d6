// Whether all ranks make the same calls in the same order, although gradients become complete in
// another order on each rank. Otherwise two ranks wait for each other in different calls.
#pragma once

#include "exercises/judge/ddp/data_parallel.hpp"

namespace ringside::exercises {

// One step of a net of eight weights, which the loss uses in another order on each rank. The
// student's method must have a bucket for each weight.
Json step_of_shuffled_net(World& world, const Method& student);

// Bucket 0, bucket 1, ... by the numbers that they send, and all of them before backward ends.
Verdict judge_order_of_calls(const Run& run);

// After the step every gradient is the mean over all ranks.
Verdict judge_means(const Run& run);

}  // namespace ringside::exercises
