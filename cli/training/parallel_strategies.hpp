// The parallel forms of ddp/ and zero/ behind the interface by which the trainer knows them: the
// one place where the two meet.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/process_group.hpp"
#include "transformer/memory.hpp"
#include "transformer/parallel_strategy.hpp"

namespace ringside::cli {

// What --parallel takes, in the order in which a reader should meet them.
std::vector<std::string> strategy_names();

// The form of this name over `group`, which must outlive it. `single` asks for a group of one;
// `bucket_mb`, of 10^6 bytes, is for `bucketed` and the zero forms but `zero3`, whose buckets are
// units. Throws Error naming the known ones.
std::unique_ptr<transformer::ParallelStrategy> make_strategy(const std::string& name,
                                                             collectives::ProcessGroup& group,
                                                             double bucket_mb);

// What a rank holds of a model's training state under this form.
transformer::Held held_by(const std::string& name, int ranks, double bucket_mb);

}  // namespace ringside::cli
