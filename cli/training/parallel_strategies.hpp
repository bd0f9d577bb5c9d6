// The parallel strategies of ddp/ and zero/, adapted to the trainer's interface. This is the only
// place that knows both.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/process_group.hpp"
#include "ddp/buckets.hpp"
#include "transformer/memory.hpp"
#include "transformer/parallel_strategy.hpp"

namespace ringside::cli {

// The values of --parallel, from the simplest to the most complex.
std::vector<std::string> strategy_names();

// The strategy of this name over `group`, which must outlive it. `single` needs a group of one
// rank. `bucket_mb`, in 10^6 bytes, is for `bucketed` and the zero strategies except `zero3`, whose
// buckets are units. The parameters in `alone` get a bucket of their own under zero1, zero2 and
// zero3. Throws Error with a list of the names if there is no such strategy.
std::unique_ptr<transformer::ParallelStrategy> make_strategy(const std::string& name,
                                                             collectives::ProcessGroup& group,
                                                             double bucket_mb,
                                                             const ddp::Alone& alone = {});

// The part of a model's training state that a rank holds under this strategy.
transformer::Held held_by(const std::string& name, int ranks, double bucket_mb);

}  // namespace ringside::cli
