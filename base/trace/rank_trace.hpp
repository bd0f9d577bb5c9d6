// The trace of a rank with times in seconds on one clock, as it is gathered from all ranks
// (training/trace/trace_file.hpp), drawn and written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/trace/trace.hpp"

namespace ringside {

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
  std::string coordinates = {};        // in a mesh: "pp=1,dp=0"; empty: all ranks are one group
  std::vector<TracedSpan> spans = {};  // as sort_spans() leaves them
  std::vector<TracedMemory> memory = {};
  std::vector<std::string> memory_kinds = {};
  std::vector<TracedMessage> messages = {};  // in the order of the rank
};

// "rank 3", or in a mesh "rank 3 (pp=1,dp=1)".
std::string name_of(const RankTrace& trace);

// By start; of two with the same start, the longer first.
void sort_spans(RankTrace& trace);

// The seconds of a span in which its rank does not wait.
double busy_seconds(const RankTrace& trace, const TracedSpan& span);

}  // namespace ringside
