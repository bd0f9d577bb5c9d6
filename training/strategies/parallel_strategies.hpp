// The parallel strategies of --parallel: those of ddp/ and zero/, and one from a shared library.
// This is the only place that knows them and the trainer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/process_group.hpp"
#include "ddp/buckets.hpp"
#include "training/strategies/parallel_strategy.hpp"

namespace ringside::training {

// Makes a strategy over `group`, which must outlive it. `bucket_mb`, in 10^6 bytes, is for
// `bucketed` and the zero strategies except `zero3`, whose buckets are units. The parameters in
// `alone` get a bucket of their own under zero1, zero2 and zero3.
using MakeStrategy = std::unique_ptr<ParallelStrategy>(collectives::ProcessGroup& group,
                                                       double bucket_mb, const ddp::Alone& alone);

// The values of --parallel, from the simplest to the most complex. The gradients and updates of all
// of them are those of a single process.
std::vector<std::string> strategy_names();

// Further values, which send fewer bytes and train a little differently (ddp/fewer_bytes/). Some
// take a number after a colon: "powersgd:8".
std::vector<std::string> lossy_strategy_names();
bool is_lossy(const std::string& name);
// The steps after which such a strategy communicates; of all others 1.
int steps_of_round(const std::string& name);

// Whether this value of --parallel names a shared library: a file whose name ends in .so.
bool is_strategy_library(const std::string& name);

// What makes the strategy of this name, or that of this library (group_strategy.hpp says how to
// write one). `single` needs a group of one rank. Throws Error with a list of the names if there is
// no such strategy or its number is wrong, and if the library cannot be loaded or has none.
std::function<MakeStrategy> find_strategy(const std::string& name);

inline std::unique_ptr<ParallelStrategy> make_strategy(const std::string& name,
                                                       collectives::ProcessGroup& group,
                                                       double bucket_mb,
                                                       const ddp::Alone& alone = {}) {
  return find_strategy(name)(group, bucket_mb, alone);
}

}  // namespace ringside::training
