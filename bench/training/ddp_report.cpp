#include "bench/training/ddp_report.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "cli/pictures/tracks_figure.hpp"
#include "cli/pictures/wrap.hpp"

namespace ringside::cli {
namespace {

// What the two predictions say, in lines of at most 80 columns.
std::string predictions(const DdpFigures& f) {
  const ddp::BucketModel& model = f.forecast.model;
  const double s = f.gradient_bytes(), best = model.best_bucket_bytes(s);
  std::string text = fmt::format(
      "bucket model: s = {:.1f} MB of gradients, o = {:.1f} us per call, w = {:.3f} GB/s", s / 1e6,
      model.overhead * 1e6, model.bandwidth / 1e9);
  if (best > 0)
    text += fmt::format(
        "; by the formula the best bucket has sqrt(s w o) = {:.2f} MB and exposes {:.1f} ms",
        best / 1e6, 1e3 * model.exposed_seconds(s, s / best));
  const ddp::BucketSize& followed = f.forecast.best();
  text += fmt::format("; followed in time, the best limit is {:g} MB and exposes {:.1f} ms",
                      followed.mb, 1e3 * f.forecast.exposed(followed));
  return wrap(text, 80) + "\n";
}

Table table_of(const DdpFigures& f) {
  const Show mb = [](double number) { return fmt::format("{:g}", number); };
  Table table{{words("strategy", "strategy", 16), number("bucket\n(MB)", "bucket_mb", mb),
               number("step\n(ms)", "step_ms", fixed(1)),
               number("network\n(ms)", "communication_ms", fixed(1)),
               number("exposed\n(ms)", "exposed_ms", fixed(1)), number("calls", "calls"),
               number("sent\n(MB)", "bytes_sent", fixed(2, 1e-6)),
               number("ratio", "ratio", fixed(3)), only_in_json("model_exposed_ms"),
               only_in_json("followed_exposed_ms")}};
  for (const StrategyRow& row : f.rows) {
    Cell by_formula, followed;
    if (row.bucket_mb) by_formula = 1e3 * f.by_formula(row), followed = 1e3 * f.followed(row);
    table.rows.push_back({row.strategy, row.bucket_mb, row.step_seconds * 1e3,
                          row.network_seconds * 1e3, row.exposed_seconds * 1e3, row.calls,
                          row.bytes_sent, row.ratio, by_formula, followed});
  }
  return table;
}

// As people read it.
Table shown_table(const DdpFigures& f) {
  Table table = table_of(f);
  table.rows.front()[0] = "no communication";
  return table;
}

// From the first rank's begin of this strategy's step to the last rank's end.
Window window_of(const std::string& strategy, const TracedStrategies& traced) {
  const std::string& phase = traced.phases.at(strategy);
  std::optional<Window> window;
  for (const RankTrace& rank : traced.ranks)
    for (const TracedSpan& span : rank.spans) {
      if (span.kind != Trace::Kind::phase || span.name != phase) continue;
      if (!window) window = {span.start, span.end};
      window->begin = std::min(window->begin, span.start);
      window->end = std::max(window->end, span.end);
    }
  return window.value();
}

// The strategies whose tracks the report shows: naive, overlap, and bucketed with its fastest size;
// or the first if none of them was measured.
std::vector<std::string> shown_strategies(const DdpFigures& f) {
  std::vector<std::string> shown;
  const StrategyRow* fastest = nullptr;
  for (const StrategyRow& row : f.rows) {
    if (row.strategy == "naive" || row.strategy == "overlap") shown.push_back(row.text());
    if (row.bucket_mb && (!fastest || row.step_seconds < fastest->step_seconds)) fastest = &row;
  }
  if (fastest) shown.push_back(fastest->text());
  if (shown.empty()) shown.push_back(f.rows.at(1).text());
  return shown;
}

}  // namespace

std::vector<StrategyRow> DdpFigures::bucketed() const {
  std::vector<StrategyRow> found;
  for (const StrategyRow& row : rows)
    if (row.bucket_mb && row.calls > 0) found.push_back(row);
  return found;
}

BenchResult result_of(const DdpFigures& f) {
  const ddp::BucketModel& model = f.forecast.model;
  Json fitted = Json::array();
  for (const auto& [bytes, seconds] : f.forecast.all_reduces)
    fitted.push_back({{"bytes", static_cast<std::int64_t>(bytes)},
                      {"time_us", seconds * 1e6},
                      {"model_us", model.call_seconds(bytes) * 1e6}});
  return {fmt::format("{}\n{}{}",
                      wrap(fmt::format("{}; medians of {} steps", f.run.title(), f.run.steps), 80),
                      shown_table(f).text(), predictions(f)),
          {{"rows", table_of(f).json(f.run.facts())},
           {"bucket_model",
            {{"gradient_bytes", static_cast<std::int64_t>(f.gradient_bytes())},
             {"overhead_us", model.overhead * 1e6},
             {"bandwidth_gbps", model.bandwidth / 1e9},
             {"backward_ms", f.forecast.backward * 1e3},
             {"best_followed_mb", f.forecast.best().mb},
             {"best_bucket_mb", model.best_bucket_bytes(f.gradient_bytes()) / 1e6},
             {"all_reduces", fitted}}}}};
}

Report ddp_report(const DdpFigures& f, const TracedStrategies& traced) {
  Report report{fmt::format("Data parallelism on {} ranks: {}", f.run.ranks, f.run.model),
                {{"run", f.run.title()},
                 {"gradients", fmt::format("{:.1f} MB", f.gradient_bytes() / 1e6)},
                 {"steps", fmt::format("{}, the strategies in turn; medians", f.run.steps)}},
                {}};
  Figure table{"The strategies side by side", "", "", shown_table(f)};
  table.caption =
      "network: time in which calls were running. exposed: time in which the rank waited for them, "
      "including for slower ranks. step, network and exposed are those of the slowest rank. ratio: "
      "step time divided by the step time without communication, in which each rank does the same "
      "work alone.";
  report.figures.push_back(table);
  const std::vector<std::string> shown = shown_strategies(f);
  double scale = 0;
  for (const std::string& name : shown) scale = std::max(scale, window_of(name, traced).seconds());
  for (const std::string& name : shown)
    report.figures.push_back(
        tracks_figure("One step: " + name, traced.ranks, window_of(name, traced), scale));
  if (!f.bucketed().empty()) report.figures.push_back(bucket_figure(f));
  return report;
}

}  // namespace ringside::cli
