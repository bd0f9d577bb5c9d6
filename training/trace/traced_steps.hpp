// The steps of the calls in a trace: which rank sent what to which, and when.
//
//     rank 0   │ step 0 ╲   │ step 1 ╲      a step on a rank is the time in which it waits for the
//     rank 1   │ step 0  ╲▶ │ step 1  ╲▶    step's message; an arrow leads there from the sender
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/trace/rank_trace.hpp"

namespace ringside::training {

// Times in seconds, as in the traces. A long message travels in slices, and a long call runs its
// schedule once for each segment of a few slices (docs/design.md): a step then occurs once for each
// segment.
struct TracedStep {
  int step = 0;
  int from = 0, to = 0;  // ranks
  double sent = 0;       // when the sender posted its first slice
  double arrived = 0;    // when the last slice had arrived
  std::uint64_t bytes = 0;
  int call = -1;  // of the receiver's calls, from 0; -1: its call is not in the trace
  std::string collective;
  double began = 0;  // on the receiver: when the step before ended, or the call began
};

// By receiver, and there in the order of time. All calls must be of one group, whose ranks are
// those of the traces; of a mesh, whose calls belong to several groups, there are none.
std::vector<TracedStep> traced_steps(const std::vector<RankTrace>& ranks);

}  // namespace ringside::training
