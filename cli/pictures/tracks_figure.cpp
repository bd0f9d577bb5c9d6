#include "cli/pictures/tracks_figure.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/pictures/numbers.hpp"
#include "training/trace/traced_steps.hpp"

namespace ringside::cli {
namespace {

// Milliseconds since `begin`, to a tenth of a microsecond.
double ms_since(double begin, double time) {
  return std::round((time - begin) * 1e7) / 1e4;
}

Json spans_of(const RankTrace& trace, const Window& window) {
  Json spans = Json::array();
  for (const TracedSpan& span : trace.spans) {
    if (!window.contains(span) || span.is_step()) continue;
    Json row = {name_of(span.kind), span.name, span.about, ms_since(window.begin, span.start),
                ms_since(window.begin, span.end)};
    if (span.kind == Trace::Kind::call) {
      row.push_back(static_cast<double>(span.bytes) / 1e6);
      row.push_back(ms_since(span.queued, span.start));
    }
    spans.push_back(row);
  }
  return spans;
}

Json steps_of(const RankTrace& trace, const std::vector<training::TracedStep>& all,
              const Window& window) {
  Json steps = Json::array();
  const auto calls_before = std::ranges::count_if(trace.spans, [&](const TracedSpan& span) {
    return span.kind == Trace::Kind::call && span.start < window.begin;
  });
  for (const training::TracedStep& step : all)
    if (step.to == trace.rank && step.call >= calls_before && step.arrived <= window.end)
      steps.push_back({step.step, step.from, ms_since(window.begin, step.sent),
                       ms_since(window.begin, step.began), ms_since(window.begin, step.arrived),
                       static_cast<double>(step.bytes) / 1e6, step.call - calls_before});
  return steps;
}

Json drawing_of(const std::vector<RankTrace>& ranks, const Window& window, double scale) {
  const auto steps = training::traced_steps(ranks);
  Json of_ranks = Json::array();
  for (const RankTrace& trace : ranks)
    of_ranks.push_back({{"rank", trace.rank},
                        {"name", name_of(trace)},
                        {"spans", spans_of(trace, window)},
                        {"steps", steps_of(trace, steps, window)}});
  return {{"kind", "tracks"},
          {"end", window.seconds() * 1e3},
          {"scale", scale * 1e3},
          {"ranks", of_ranks}};
}

// One sentence: how much of the step was waiting, and for whom.
std::string conclusion_of(const std::vector<RankTrace>& ranks,
                          const std::vector<TrackTotals>& totals, double seconds) {
  double waiting = 0;
  for (const TrackTotals& each : totals) waiting += each.exposed;
  const double share =
      100 * waiting / (static_cast<double>(ranks.size()) * std::max(seconds, 1e-9));
  if (ranks.size() == 1)
    return fmt::format("{} ms; {:.0f} % of it was waiting for calls.", in_ms(seconds), share);
  const auto slowest = std::ranges::max_element(totals, {}, &TrackTotals::computing),
             fastest = std::ranges::min_element(totals, {}, &TrackTotals::computing);
  return fmt::format(
      "{:.0f} % of the step was waiting for other ranks and the network; rank {} computed longest, "
      "{} ms, and the fastest rank {} ms.",
      share, ranks[static_cast<std::size_t>(slowest - totals.begin())].rank,
      in_ms(slowest->computing), in_ms(fastest->computing));
}

}  // namespace

TrackTotals totals_of(const RankTrace& trace, const Window& window) {
  TrackTotals totals;
  for (const auto& span : trace.spans) {
    if (!window.contains(span) || span.is_step()) continue;
    if (span.kind == Trace::Kind::phase) totals.computing += busy_seconds(trace, span);
    if (span.kind == Trace::Kind::wait) totals.exposed += span.seconds();
    if (span.kind == Trace::Kind::call) totals.network += span.seconds(), ++totals.calls;
  }
  return totals;
}

Figure tracks_figure(const std::string& title, const std::vector<RankTrace>& ranks,
                     const Window& window, double scale) {
  scale = std::max(scale, window.seconds());
  require(scale > 0, "there is nothing to draw: no time passed");
  Table table{{{"rank", "rank"},
               number("computing (ms)", "computing_seconds", in_ms),
               number("waiting (ms)", "waiting_seconds", in_ms),
               {"calls", "calls"},
               number("in calls (ms)", "in_calls_seconds", in_ms)}};
  std::vector<TrackTotals> totals;
  for (const auto& trace : ranks) {
    const TrackTotals& of_rank = totals.emplace_back(totals_of(trace, window));
    table.rows.push_back(
        {trace.rank, of_rank.computing, of_rank.exposed, of_rank.calls, of_rank.network});
  }
  return {title, drawing_of(ranks, window, scale), conclusion_of(ranks, totals, window.seconds()),
          table};
}

}  // namespace ringside::cli
