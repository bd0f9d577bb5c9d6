#include "cli/pictures/tracks_figure.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/lanes.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/report/traced_steps.hpp"

namespace ringside::cli {
namespace {

bool within(const TracedSpan& span, const Window& window) {
  return span.start >= window.begin - 1e-9 && span.end <= window.end + 1e-9;
}

bool is_whole_step(const TracedSpan& span) {
  return span.kind == Trace::Kind::phase && span.name.starts_with("step ");
}

// The spans of a track that are seen in a whole step: phases and waits, or calls.
std::vector<TracedSpan> drawn_spans(const RankTrace& trace, const Window& window,
                                    Trace::Track track) {
  std::vector<TracedSpan> spans;
  for (const auto& span : trace.spans)
    if (span.track == track && span.kind != Trace::Kind::op && !is_whole_step(span) &&
        within(span, window))
      spans.push_back(span);
  return spans;
}

const char* css_class(const TracedSpan& span) {
  if (span.kind == Trace::Kind::call) return "call";
  if (span.kind == Trace::Kind::wait) return "wait";
  if (span.name == "forward") return "forward";
  if (span.name == "backward weight") return "weight";
  if (span.name.starts_with("backward")) return "backward";
  return span.name == "optimizer" || span.name == "clip" ? "optimizer" : "other";
}

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

Lane lane_of(const RankTrace& trace, Trace::Track which, const Window& window) {
  Lane lane{name_of(which), fmt::format("rank {}, {}", trace.rank, name_of(which)),
            window.seconds()};
  lane.attributes = fmt::format(" data-rank=\"{}\" data-track=\"{}\"", trace.rank, name_of(which));
  for (const auto& span : drawn_spans(trace, window, which)) {
    const bool named =
        span.kind == Trace::Kind::phase &&
        (span.name == "forward" || span.name == "backward" || span.name == "optimizer");
    lane.marks.push_back({css_class(span), description(span, trace.rank, window),
                          span.start - window.begin, span.end - window.begin,
                          named ? span.name : ""});
  }
  return lane;
}

// The time that a rank spent in each kind of span: one row for each name.
void add_rows(Table& table, const RankTrace& trace, const Window& window) {
  std::map<std::pair<Trace::Track, std::string>, std::pair<int, double>> totals;
  for (const auto which : {Trace::Track::compute, Trace::Track::communication})
    for (const auto& span : drawn_spans(trace, window, which)) {
      auto& [count, seconds] =
          totals[{which, span.kind == Trace::Kind::wait ? "exposed: " + span.name : span.name}];
      ++count, seconds += span.seconds();
    }
  for (const auto& [key, total] : totals)
    table.rows.push_back({fmt::to_string(trace.rank), name_of(key.first), key.second,
                          fmt::to_string(total.first), in_ms(total.second)});
}

// Numbers the words that occur, in the order in which they first do.
class Words {
 public:
  std::size_t operator()(const std::string& word) {
    const auto [found, added] = numbers_.emplace(word, list_.size());
    if (added) list_.push_back(word);
    return found->second;
  }
  const Json& list() const { return list_; }

 private:
  std::map<std::string, std::size_t> numbers_;
  Json list_ = Json::array();
};

// Milliseconds since the window began, to a tenth of a microsecond.
double ms_since(const Window& window, double time) {
  return std::round((time - window.begin) * 1e7) / 1e4;
}

// The ops of a rank, each in the colour of its phase.
Json ops_of(const RankTrace& trace, const Window& window, Words& words) {
  Json ops = Json::array();
  const char* colour = "other";
  double phase_ends = 0;
  for (const auto& span : trace.spans) {
    if (!within(span, window) || is_whole_step(span)) continue;
    if (span.kind == Trace::Kind::phase) colour = css_class(span), phase_ends = span.end;
    if (span.kind != Trace::Kind::op) continue;
    ops.push_back({words(span.name), words(span.start < phase_ends ? colour : "other"),
                   ms_since(window, span.start), ms_since(window, span.end)});
  }
  return ops;
}

// What the page shows when it is zoomed in (tracks_figure.hpp).
Json details_of(const std::vector<RankTrace>& ranks, const Window& window, double scale,
                bool one_group) {
  Words words;
  Json of_ranks = Json::array();
  const auto steps = one_group ? traced_steps(ranks) : std::vector<TracedStep>();
  for (const auto& trace : ranks) {
    Json of_rank = {
        {"rank", trace.rank}, {"ops", ops_of(trace, window, words)}, {"steps", Json::array()}};
    const auto calls_before = std::ranges::count_if(trace.spans, [&](const TracedSpan& span) {
      return span.kind == Trace::Kind::call && span.start < window.begin;
    });
    for (const TracedStep& step : steps)
      if (step.to == trace.rank && step.call >= calls_before && step.arrived <= window.end)
        of_rank["steps"].push_back({step.step, step.from, ms_since(window, step.sent),
                                    ms_since(window, step.began), ms_since(window, step.arrived),
                                    static_cast<double>(step.bytes) / 1e6,
                                    step.call - calls_before});
    of_ranks.push_back(of_rank);
  }
  return {{"scale", scale * 1e3}, {"words", words.list()}, {"ranks", of_ranks}};
}

}  // namespace

// A rank computes in its phases, except where it waits within them. In a pipeline it also waits
// between phases.
TrackTotals totals_of(const RankTrace& trace, const Window& window) {
  TrackTotals totals;
  std::vector<TracedSpan> phases, waits;
  for (const auto& span : trace.spans) {
    if (!within(span, window) || is_whole_step(span)) continue;
    if (span.kind == Trace::Kind::phase) phases.push_back(span);
    if (span.kind == Trace::Kind::wait) waits.push_back(span);
    if (span.kind == Trace::Kind::call) totals.network += span.seconds(), ++totals.calls;
  }
  for (const auto& wait : waits) totals.exposed += wait.seconds();
  for (const auto& phase : phases) {
    totals.computing += phase.seconds();
    for (const auto& wait : waits)
      totals.computing -=
          std::max(0.0, std::min(phase.end, wait.end) - std::max(phase.start, wait.start));
  }
  return totals;
}

namespace {

// One sentence: how much of the step was waiting, and for whom.
std::string conclusion_of(const std::vector<RankTrace>& ranks, const Window& window) {
  double waiting = 0, most = -1, least = 0;
  int slowest = 0;
  for (const auto& trace : ranks) {
    const TrackTotals totals = totals_of(trace, window);
    waiting += totals.exposed;
    least = most < 0 ? totals.computing : std::min(least, totals.computing);
    if (totals.computing > most) most = totals.computing, slowest = trace.rank;
  }
  const double share =
      100 * waiting / (static_cast<double>(ranks.size()) * std::max(window.seconds(), 1e-9));
  if (ranks.size() == 1)
    return fmt::format("{} ms; {:.0f} % of it was waiting for calls.", in_ms(window.seconds()),
                       share);
  return fmt::format(
      "{:.0f} % of the step was waiting for other ranks and the network; rank {} computed longest, "
      "{} ms, and the fastest rank {} ms.",
      share, slowest, in_ms(most), in_ms(least));
}

}  // namespace

Figure tracks_figure(const std::string& title, const std::vector<RankTrace>& ranks,
                     const Window& window, double scale, bool one_group) {
  scale = std::max(scale, window.seconds());
  require(scale > 0, "there is nothing to draw: no time passed");
  Figure figure{
      title, "<div class=\"lanes\">\n", "", {{"rank", "track", "span", "count", "total (ms)"}, {}}};
  figure.caption = conclusion_of(ranks, window);
  figure.summary.head = {"rank", "computing (ms)", "waiting (ms)", "calls", "in calls (ms)"};
  for (const auto& trace : ranks) {
    const TrackTotals totals = totals_of(trace, window);
    figure.summary.rows.push_back({fmt::to_string(trace.rank), in_ms(totals.computing),
                                   in_ms(totals.exposed), fmt::to_string(totals.calls),
                                   in_ms(totals.network)});
    figure.drawing += fmt::format("<h3>rank {}</h3>\n", trace.rank) +
                      draw(lane_of(trace, Trace::Track::compute, window), scale) +
                      draw(lane_of(trace, Trace::Track::communication, window), scale);
    add_rows(figure.table, trace, window);
  }
  figure.drawing += lanes_axis(scale * 1e3, "time since the step began (ms)") + "</div>\n" +
                    lanes_legend({{"forward", "forward"},
                                  {"backward", "backward"},
                                  {"weight", "backward of weights alone (pipelines)"},
                                  {"optimizer", "clip, optimizer"},
                                  {"other", "other phases"},
                                  {"wait", "exposed communication: the rank waits"},
                                  {"call", "a call in progress"}}) +
                    "<script type=\"application/json\" class=\"tracks-data\">" +
                    details_of(ranks, window, scale, one_group).dump() + "</script>\n";
  return figure;
}

}  // namespace ringside::cli
