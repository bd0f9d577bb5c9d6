#include "cli/pictures/tracks_figure.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/lanes.hpp"
#include "cli/pictures/numbers.hpp"
#include "training/trace/traced_steps.hpp"

namespace ringside::cli {
namespace {

std::string description(const TracedSpan& span, int rank, const Window& window) {
  std::string text = fmt::format("Rank {}: {}", rank, span.name);
  if (!span.about.empty()) text += fmt::format(" ({})", span.about);
  text += fmt::format(", {} ms, from {} to {} ms", in_ms(span.seconds()),
                      in_ms(span.start - window.begin), in_ms(span.end - window.begin));
  if (span.kind == Trace::Kind::call) {
    text += fmt::format("; {:.3g} MB", static_cast<double>(span.bytes) / 1e6);
    if (span.start - span.queued > 1e-5)
      text += fmt::format(", queued for {} ms before", in_ms(span.start - span.queued));
  }
  return text;
}

// What is seen of a track in a whole step: phases and waits, or calls.
Lane lane_of(const RankTrace& trace, Trace::Track track, const Window& window) {
  Lane lane{name_of(track), fmt::format("rank {}, {}", trace.rank, name_of(track)),
            1e3 * window.seconds()};
  lane.attributes = fmt::format(" data-rank=\"{}\" data-track=\"{}\"", trace.rank, name_of(track));
  for (const auto& span : trace.spans) {
    if (span.track != track || span.kind == Trace::Kind::op || span.is_step() ||
        !window.contains(span))
      continue;
    const bool named =
        span.name == "forward" || span.name == "backward" || span.name == "optimizer";
    lane.marks.push_back({class_of(span), description(span, trace.rank, window),
                          1e3 * (span.start - window.begin), 1e3 * (span.end - window.begin),
                          !named               ? ""
                          : span.about.empty() ? span.name
                                               : span.about});
  }
  return lane;
}

// Milliseconds since the window began, to a tenth of a microsecond.
double ms_since(const Window& window, double time) {
  return std::round((time - window.begin) * 1e7) / 1e4;
}

// The ops of a rank, each in the colour of its phase.
Json ops_of(const RankTrace& trace, const Window& window) {
  Json ops = Json::array();
  const char* colour = "other";
  double phase_ends = 0;
  for (const auto& span : trace.spans) {
    if (!window.contains(span) || span.is_step()) continue;
    if (span.kind == Trace::Kind::phase) colour = class_of(span), phase_ends = span.end;
    if (span.kind != Trace::Kind::op) continue;
    ops.push_back({span.name, span.start < phase_ends ? colour : "other",
                   ms_since(window, span.start), ms_since(window, span.end)});
  }
  return ops;
}

// What the page shows when it is zoomed in (tracks_figure.hpp).
Json details_of(const std::vector<RankTrace>& ranks, const Window& window, double scale) {
  Json of_ranks = Json::array();
  const auto steps = training::traced_steps(ranks);
  for (const auto& trace : ranks) {
    Json of_rank = {{"rank", trace.rank}, {"ops", ops_of(trace, window)}, {"steps", Json::array()}};
    const auto calls_before = std::ranges::count_if(trace.spans, [&](const TracedSpan& span) {
      return span.kind == Trace::Kind::call && span.start < window.begin;
    });
    for (const training::TracedStep& step : steps)
      if (step.to == trace.rank && step.call >= calls_before && step.arrived <= window.end)
        of_rank["steps"].push_back({step.step, step.from, ms_since(window, step.sent),
                                    ms_since(window, step.began), ms_since(window, step.arrived),
                                    static_cast<double>(step.bytes) / 1e6,
                                    step.call - calls_before});
    of_ranks.push_back(of_rank);
  }
  return {{"scale", scale * 1e3}, {"ranks", of_ranks}};
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
  std::vector<Lane> lanes;
  std::vector<TrackTotals> totals;
  for (const auto& trace : ranks) {
    const TrackTotals& of_rank = totals.emplace_back(totals_of(trace, window));
    table.rows.push_back(
        {trace.rank, of_rank.computing, of_rank.exposed, of_rank.calls, of_rank.network});
    for (const auto track : {Trace::Track::compute, Trace::Track::communication})
      lanes.push_back(lane_of(trace, track, window));
    lanes[lanes.size() - 2].heading = name_of(trace);
  }
  const std::string drawing = draw(lanes, scale * 1e3, "time since the step began (ms)",
                                   {{"forward", "forward"},
                                    {"backward", "backward"},
                                    {"weight", "backward of weights alone (pipelines)"},
                                    {"optimizer", "clip, optimizer"},
                                    {"other", "other phases"},
                                    {"wait", "exposed communication: the rank waits"},
                                    {"call", "a call in progress"}}) +
                              "<script type=\"application/json\" class=\"tracks-data\">" +
                              details_of(ranks, window, scale).dump() + "</script>\n";
  return {title, drawing, conclusion_of(ranks, totals, window.seconds()), table};
}

}  // namespace ringside::cli
