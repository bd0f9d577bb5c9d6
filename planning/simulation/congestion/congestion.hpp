// Congestion: the same step on a network whose links are shared (engine 3).
//
// Messages between stages and the reduction of gradients are flows. Whenever one begins or ends,
// the rates of all are computed again (fair_share.hpp). So time must go on in order, from event to
// event:
//
//     a rank ends a computation  |  a bucket of gradients is ready  |  a latency is over, and the
//     flow begins  |  a flow ends: the message is there, the bucket is reduced
//
// Without contention all times are those of longest_path(). Calls amid a computation keep their
// undisturbed times: those of tensor, context and expert parallel, and the gathers of sharded
// parameters.
#pragma once

#include "planning/machine.hpp"
#include "planning/simulation/longest_path.hpp"

namespace ringside::planning {

// What travels, beyond the durations of PathInput.
struct Transfers {
  double message_bytes = 0;          // between neighbouring stages, of one rank
  std::vector<double> bucket_bytes;  // [stage] that a rank sends for one bucket
  std::int64_t context_ranks = 1;    // of a unit, which reduce gradients together with the replicas
};

// Every replica must be listed, each with count 1: which of them share a link matters. Throws Error
// if the schedule hangs, or if slow ranks meet sharded parameters or experts.
Timeline congested_path(const PathInput& input, const Transfers& transfers, const Machine& machine);

}  // namespace ringside::planning
