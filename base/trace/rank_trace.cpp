#include "base/trace/rank_trace.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace ringside {

std::string name_of(const RankTrace& trace) {
  return trace.coordinates.empty() ? fmt::format("rank {}", trace.rank)
                                   : fmt::format("rank {} ({})", trace.rank, trace.coordinates);
}

void sort_spans(RankTrace& trace) {
  std::ranges::stable_sort(trace.spans, [](const TracedSpan& a, const TracedSpan& b) {
    return a.start != b.start ? a.start < b.start : a.end > b.end;
  });
}

double busy_seconds(const RankTrace& trace, const TracedSpan& span) {
  double busy = span.seconds();
  for (const TracedSpan& wait : trace.spans)
    if (wait.kind == Trace::Kind::wait)
      busy -= std::max(0.0, std::min(span.end, wait.end) - std::max(span.start, wait.start));
  return busy;
}

}  // namespace ringside
