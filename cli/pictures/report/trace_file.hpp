// The traces of all ranks, gathered on rank 0 with times on one clock, and written in a format that
// Perfetto (ui.perfetto.dev) and chrome://tracing open: one process per rank, one thread per track.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/trace.hpp"
#include "cli/pictures/json_file.hpp"
#include "collectives/process_group.hpp"

namespace ringside::cli {

// Times are in seconds on the clock of rank 0, since the earliest start on any rank.
struct TracedSpan {
  Trace::Track track = Trace::Track::compute;
  Trace::Kind kind = Trace::Kind::op;
  std::string name, about;
  double start = 0, end = 0;
  double queued = -1;  // when a call was enqueued; -1: not a call
  std::uint64_t bytes = 0;

  double seconds() const { return end - start; }
  // The phase that a whole training step is.
  bool is_step() const { return kind == Trace::Kind::phase && name.starts_with("step "); }
};

// A part of a trace: the spans that begin and end within it.
struct Window {
  double begin = 0, end = 0;  // seconds

  double seconds() const { return end - begin; }
  bool contains(const TracedSpan& span) const {
    constexpr double rounding = 1e-9;  // of times in a file
    return span.start >= begin - rounding && span.end <= end + rounding;
  }
};

// A message of a call. Sends have their slice and bytes.
struct TracedMessage {
  bool sent = false;  // else received
  int peer = 0, step = 0;
  std::int64_t slice = 0;
  std::uint64_t bytes = 0;
  double time = 0;
};

struct TracedMemory {
  double time = 0;
  std::vector<std::int64_t> bytes;  // by kind
};

struct RankTrace {
  int rank = 0;
  std::vector<TracedSpan> spans;  // as sort_spans() leaves them
  std::vector<TracedMemory> memory;
  std::vector<std::string> memory_kinds;
  std::vector<TracedMessage> messages = {};  // in the order of the rank
};

// By start; of two with the same start, the longer first.
void sort_spans(RankTrace& trace);

// What a span belongs to, as a class of the palette: "call", "wait", "forward", "backward",
// "weight" (backward of the weights alone), "optimizer" (and clip) or "other".
const char* class_of(const TracedSpan& span);

// The seconds of a span in which its rank does not wait.
double busy_seconds(const RankTrace& trace, const TracedSpan& span);

// Every rank must call it while no asynchronous call is running. Rank 0 gets the traces of all
// ranks, the others none.
//
// Ranks of one machine share its monotonic clock. For a rank of another machine, the offset from
// rank 0's clock is estimated from round trips (Cristian, "Probabilistic clock synchronization",
// Distributed Computing 3, 1989). Its error is at most half of the shortest round trip.
// `always_estimate` is for the test.
std::vector<RankTrace> gather_traces(const Trace& mine, collectives::ProcessGroup& group,
                                     bool always_estimate = false);

// The traces in Chrome's JSON object format, with times in microseconds. If all ranks make the same
// calls, in one group, a call contains its steps (traced_steps.hpp), each with an arrow (flow
// events) from the sender to the receiver.
Json chrome_trace(const std::vector<RankTrace>& ranks, bool one_group = false);

}  // namespace ringside::cli
