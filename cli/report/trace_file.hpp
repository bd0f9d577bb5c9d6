// The traces of all ranks in one place: gathered over the group, on one clock, and written as a
// file that Perfetto (ui.perfetto.dev) and chrome://tracing open: a process for each rank, a thread
// for each lane.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/trace.hpp"
#include "cli/report/json_file.hpp"
#include "collectives/process_group.hpp"

namespace ringside::cli {

// Times are in seconds since the earliest start on any rank, on the clock of rank 0.
struct TracedSpan {
  Trace::Lane lane = Trace::Lane::compute;
  Trace::Kind kind = Trace::Kind::op;
  std::string name, about;
  double start = 0, end = 0;
  double queued = -1;  // of a call: when it was made; -1: no call
  std::uint64_t bytes = 0;

  double seconds() const { return end - start; }
};

struct TracedMemory {
  double time = 0;
  std::vector<std::int64_t> bytes;  // by kind
};

struct RankTrace {
  int rank = 0;
  std::vector<TracedSpan> spans;  // by their start; of two that start together the longer first
  std::vector<TracedMemory> memory;
  std::vector<std::string> memory_kinds;
};

// Every rank must call it, when nothing is under way. Rank 0 gets all ranks' traces, the others
// none. Ranks of one machine share its monotonic clock; for a rank of another machine, the
// difference from rank 0's is estimated by asking back and forth (Cristian, "Probabilistic clock
// synchronization", Distributed Computing 3, 1989): it is wrong by no more than half of the
// quickest answer's time. `ask_in_any_case` is for the test.
std::vector<RankTrace> gather_traces(const Trace& mine, collectives::ProcessGroup& group,
                                     bool ask_in_any_case = false);

// The trace in the format of Chrome's (JSON object format, times in microseconds).
Json chrome_trace(const std::vector<RankTrace>& ranks);

}  // namespace ringside::cli
