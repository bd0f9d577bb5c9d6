// The traces of all ranks, gathered on rank 0 with times on one clock, and written in a format that
// Perfetto (ui.perfetto.dev) and chrome://tracing open: one process per rank, one thread per track.
#pragma once

#include <vector>

#include "base/json.hpp"
#include "base/trace/rank_trace.hpp"
#include "collectives/process_group.hpp"

namespace ringside::training {

// Every rank must call it while no asynchronous call is running. Rank 0 gets the traces of all
// ranks, the others none.
//
// Ranks of one machine share its monotonic clock. For a rank of another machine, the offset from
// rank 0's clock is estimated from round trips (Cristian, "Probabilistic clock synchronization",
// Distributed Computing 3, 1989). Its error is at most half of the shortest round trip.
// `always_estimate` is for the test.
std::vector<RankTrace> gather_traces(const Trace& mine, collectives::ProcessGroup& group,
                                     bool always_estimate = false);

// The traces in Chrome's JSON object format, with times in microseconds. A call contains its
// steps (traced_steps.hpp), each with an arrow (flow events) from the sender to the receiver.
Json chrome_trace(const std::vector<RankTrace>& ranks);

}  // namespace ringside::training
