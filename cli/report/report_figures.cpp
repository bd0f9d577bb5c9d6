#include "cli/report/report_figures.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "cli/report/numbers.hpp"

namespace ringside::cli {
namespace {

std::string ms(double seconds) {
  return fmt::format("{:.{}f}", seconds * 1e3, seconds < 0.1 ? 2 : 1);
}

bool within(const TracedSpan& span, const Window& window) {
  return span.start >= window.begin - 1e-9 && span.end <= window.end + 1e-9;
}

bool is_whole_step(const TracedSpan& span) {
  return span.kind == Trace::Kind::phase && span.name.starts_with("step ");
}

// The spans of a track that the report draws: phases and waits, or calls. Ops are too short for it;
// the trace file has them.
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
  text += fmt::format(", {} ms, from {} to {} ms", ms(span.seconds()),
                      ms(span.start - window.begin), ms(span.end - window.begin));
  if (span.kind == Trace::Kind::call) {
    text += fmt::format("; {:.3g} MB", static_cast<double>(span.bytes) / 1e6);
    if (span.start - span.queued > 1e-5)
      text += fmt::format(", queued for {} ms before", ms(span.start - span.queued));
  }
  return text;
}

// One track. Positions are percentages of the width, so that the track fits any window while its
// text keeps its size.
std::string track(const RankTrace& trace, Trace::Track which, const Window& window, double scale) {
  std::string svg = fmt::format(
      "<span class=\"lane-name\">{}</span>\n<svg class=\"lane\" role=\"group\" aria-label=\"rank "
      "{}, {}\">\n"
      "<rect class=\"under\" y=\"2\" width=\"{:.3f}%\" height=\"24\" />\n",
      name_of(which), trace.rank, name_of(which), 100 * window.seconds() / scale);
  constexpr double room_for_text = 17;  // per cent: 60 pixels on a phone
  for (const auto& span : drawn_spans(trace, window, which)) {
    const double x = 100 * (span.start - window.begin) / scale,
                 w = std::max(0.08, 100 * span.seconds() / scale);
    svg += fmt::format(
        "<g class=\"{}\" role=\"img\" tabindex=\"-1\" aria-label=\"{}\"><rect x=\"{:.3f}%\" "
        "y=\"2\" width=\"{:.3f}%\" height=\"24\" />",
        css_class(span), escaped(description(span, trace.rank, window)), x, w);
    const bool named =
        span.kind == Trace::Kind::phase && w > room_for_text &&
        (span.name == "forward" || span.name == "backward" || span.name == "optimizer");
    if (named)
      svg += fmt::format("<text x=\"{:.3f}%\" dx=\"5\" y=\"18\" aria-hidden=\"true\">{}</text>", x,
                         span.name);
    svg += "</g>\n";
  }
  return svg + "</svg>\n";
}

std::string time_axis(double scale) {
  std::string svg = "<svg class=\"ticks\" aria-hidden=\"true\">\n";
  for (const double tick : round_ticks(0, scale * 1e3, 5)) {
    const double x = 100 * tick / (scale * 1e3);
    const char* anchor = x < 2 ? "start" : x > 94 ? "end" : "middle";
    svg += fmt::format(
        "<line x1=\"{0:.2f}%\" x2=\"{0:.2f}%\" y1=\"0\" y2=\"5\" /><text x=\"{0:.2f}%\" y=\"18\" "
        "text-anchor=\"{1}\">{2:g}</text>\n",
        x, anchor, tick);
  }
  return svg + "</svg>\n<span class=\"axis\">time since the step began (ms)</span>\n";
}

std::string lanes_legend() {
  std::string list = "<ul class=\"legend\">\n";
  for (const auto& [kind, words] :
       {std::pair("forward", "forward"), std::pair("backward", "backward"),
        std::pair("weight", "backward of weights alone (pipelines)"),
        std::pair("optimizer", "clip, optimizer"), std::pair("other", "other phases"),
        std::pair("wait", "exposed communication: the rank waits"),
        std::pair("call", "a call in progress")})
    list += fmt::format(
        "<li><svg aria-hidden=\"true\"><g class=\"{}\"><rect width=\"20\" height=\"12\" "
        "/></g></svg>{}</li>\n",
        kind, words);
  return list + "</ul>\n";
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
                          fmt::to_string(total.first), ms(total.second)});
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
    return fmt::format("{} ms; {:.0f} % of it was waiting for calls.", ms(window.seconds()), share);
  return fmt::format(
      "{:.0f} % of the step was waiting for other ranks and the network; rank {} computed longest, "
      "{} ms, and the fastest rank {} ms.",
      share, slowest, ms(most), ms(least));
}

}  // namespace

Figure tracks_figure(const std::string& title, const std::vector<RankTrace>& ranks,
                     const Window& window, double scale) {
  scale = std::max(scale, window.seconds());
  require(scale > 0, "there is nothing to draw: no time passed");
  Figure figure{
      title, "<div class=\"lanes\">\n", "", {{"rank", "track", "span", "count", "total (ms)"}, {}}};
  figure.caption = conclusion_of(ranks, window);
  figure.summary.head = {"rank", "computing (ms)", "waiting (ms)", "calls", "in calls (ms)"};
  for (const auto& trace : ranks) {
    const TrackTotals totals = totals_of(trace, window);
    figure.summary.rows.push_back({fmt::to_string(trace.rank), ms(totals.computing),
                                   ms(totals.exposed), fmt::to_string(totals.calls),
                                   ms(totals.network)});
    figure.drawing += fmt::format("<h3>rank {}</h3>\n", trace.rank) +
                      track(trace, Trace::Track::compute, window, scale) +
                      track(trace, Trace::Track::communication, window, scale);
    add_rows(figure.table, trace, window);
  }
  figure.drawing += time_axis(scale) + "</div>\n" + lanes_legend();
  return figure;
}

namespace {

// The colour of the phase or call that fills this memory: one colour has one meaning in a report.
int colour_of_memory(const std::string& kind) {
  const std::map<std::string, int> colours = {{"activations", 0},
                                              {"communication", 1},
                                              {"gradients", 2},
                                              {"optimizer state", 3},
                                              {"parameters", 6}};
  const auto found = colours.find(kind);
  return found == colours.end() ? 7 : found->second;
}

}  // namespace

Figure memory_figure(const RankTrace& trace, const Window& window) {
  Chart chart{
      "Memory held during a step", {"time since the step began (ms)"}, {"MB (10^6 bytes)"}, {}};
  Figure figure{
      fmt::format("Memory of rank {} over one step", trace.rank), "", "", {{"time (ms)"}, {}}};
  for (const auto& kind : trace.memory_kinds) {
    chart.series.push_back({kind, Series::area, {}, colour_of_memory(kind)});
    figure.table.head.push_back(kind + " (MB)");
  }
  double most = 0, most_at = 0;
  std::vector<const TracedMemory*> samples;
  for (const auto& sample : trace.memory)
    if (sample.time >= window.begin && sample.time <= window.end) samples.push_back(&sample);
  require(!samples.empty(), "there is nothing to draw: no memory was recorded in that step");
  const std::size_t every = std::max<std::size_t>(1, samples.size() / 24);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double at = (samples[i]->time - window.begin) * 1e3;
    double sum = 0;
    std::vector<std::string> row{fmt::format("{:.1f}", at)};
    for (std::size_t k = 0; k < chart.series.size(); ++k) {
      const double held =
          k < samples[i]->bytes.size() ? static_cast<double>(samples[i]->bytes[k]) / 1e6 : 0;
      chart.series[k].points.emplace_back(at, held);
      row.push_back(fmt::format("{:.2f}", held));
      sum += held;
    }
    if (sum > most) most = sum, most_at = at;
    if (i % every == 0 || i + 1 == samples.size()) figure.table.rows.push_back(std::move(row));
  }
  figure.drawing = draw(chart);
  figure.caption = fmt::format(
      "Bytes in tensors after every operation. The peak is {:.1f} MB, {:.1f} ms after the step "
      "began.",
      most, most_at);
  return figure;
}

Figure loss_figure(const std::vector<std::pair<std::int64_t, double>>& bits_per_byte) {
  require(!bits_per_byte.empty(), "there is nothing to draw: no step was taken");
  Chart chart{"Loss over steps",
              {"step"},
              {"loss (bits per byte)"},
              {{"loss of the batch", Series::line, {}, 8}}};
  Figure figure{"Loss", "", "", {{"step", "loss (bits per byte)"}, {}}};
  const std::size_t every = std::max<std::size_t>(1, bits_per_byte.size() / 30);
  for (std::size_t i = 0; i < bits_per_byte.size(); ++i) {
    const auto& [step, bits] = bits_per_byte[i];
    chart.series[0].points.emplace_back(static_cast<double>(step), bits);
    if (i % every == 0 || i + 1 == bits_per_byte.size())
      figure.table.rows.push_back({fmt::to_string(step), fmt::format("{:.4f}", bits)});
  }
  if (bits_per_byte.size() == 1) chart.series[0].style = Series::dots;
  figure.drawing = draw(chart);
  figure.caption =
      fmt::format("The loss goes from {:.3f} bits per byte in step {} to {:.3f} in step {}.",
                  bits_per_byte.front().second, bits_per_byte.front().first,
                  bits_per_byte.back().second, bits_per_byte.back().first);
  return figure;
}

Chart bucket_chart(const BucketStudy& study) {
  const double total = study.gradient_bytes, best_bytes = study.model.best_bucket_bytes(total);
  Chart chart{"Exposed communication by bucket size",
              {"mean bucket size (MB)", true},
              {"ms per step", true},
              {}};
  Series formula{"formula: s/(w n) + n o", Series::dashed, {}, 8},
      followed{"buckets followed in time", Series::line, {}, 8},
      best{"best size by either", Series::rings, {}, 8},
      exposed{"measured: exposed", Series::dots, {}, 5},
      over{"measured: step minus step without communication", Series::dots, {}, 7};
  double smallest = total / 200, largest = total;
  if (best_bytes > 0) smallest = std::min(smallest, best_bytes / 3);
  for (const auto& m : study.measured) {
    const double bytes = total / m.calls;
    smallest = std::min(smallest, bytes), largest = std::max(largest, bytes);
    exposed.points.emplace_back(bytes / 1e6, m.exposed * 1e3);
    over.points.emplace_back(bytes / 1e6, m.over_compute * 1e3);
  }
  const auto by_formula = [&](double bytes) {
    return std::pair(bytes / 1e6, study.model.exposed_seconds(total, total / bytes) * 1e3);
  };
  for (int i = 0; i <= 60; ++i)
    formula.points.push_back(by_formula(smallest * std::pow(largest / smallest, i / 60.0)));
  for (const auto& [bytes, seconds] : study.followed)
    followed.points.emplace_back(bytes / 1e6, seconds * 1e3);
  if (best_bytes > 0) best.points.push_back(by_formula(best_bytes));
  const auto least =
      std::min_element(study.followed.rbegin(), study.followed.rend(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (least != study.followed.rend())
    best.points.emplace_back(least->first / 1e6, least->second * 1e3);
  chart.series = {formula, followed, exposed, over, best};
  return chart;
}

Figure bucket_figure(const BucketStudy& study) {
  const auto& [model, total, followed, best_mb, measured] = study;
  Figure figure{"How large should a bucket be?", draw(bucket_chart(study)), "", {}};
  figure.caption = fmt::format(
      "s = {:.1f} MB of gradients in n buckets; a call costs o = {:.1f} us and the network reduces "
      "w = {:.3f} GB/s, as fitted to all-reduces of the same run. The formula holds where backward "
      "is slower than the network: its best bucket has sqrt(s w o) = {:.2f} MB. The other curve "
      "follows each bucket from the time when it is ready, and holds on any network: its best "
      "limit "
      "is {:g} MB.",
      total / 1e6, model.overhead * 1e6, model.bandwidth / 1e9,
      model.best_bucket_bytes(total) / 1e6, best_mb);
  figure.table.head = {"strategy",
                       "calls per step",
                       "mean bucket (MB)",
                       "formula (ms)",
                       "followed (ms)",
                       "exposed (ms)",
                       "step minus no communication (ms)"};
  for (const auto& m : measured)
    figure.table.rows.push_back({m.name, fmt::format("{:.0f}", m.calls),
                                 fmt::format("{:.3g}", total / m.calls / 1e6),
                                 ms(model.exposed_seconds(total, m.calls)), ms(m.followed),
                                 ms(m.exposed), ms(m.over_compute)});
  return figure;
}

}  // namespace ringside::cli
