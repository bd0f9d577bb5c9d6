#include "bench/training/ddp_report.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "bench/training/step_table.hpp"
#include "cli/pictures/report/recording.hpp"
#include "cli/pictures/tracks_figure.hpp"
#include "cli/pictures/wrap.hpp"

namespace ringside::cli {
namespace {

// What the two predictions say.
std::string predictions(const DdpFigures& f) {
  const ddp::BucketModel& model = f.forecast.model;
  const double s = f.gradient_bytes, best = model.best_bucket_bytes(s);
  std::string text = fmt::format(
      "bucket model: s = {:.1f} MB of gradients, o = {:.1f} us per call, w = {:.3f} GB/s", s / 1e6,
      model.overhead * 1e6, model.bandwidth / 1e9);
  if (best > 0)
    text += fmt::format(
        "; by the formula the best bucket has sqrt(s w o) = {:.2f} MB and exposes {:.1f} ms",
        best / 1e6, 1e3 * model.exposed_seconds(s, s / best));
  const BucketSize& followed = f.forecast.best();
  return text + fmt::format("; followed in time, the best limit is {:g} MB and exposes {:.1f} ms",
                            followed.mb, 1e3 * f.forecast.exposed(followed));
}

// As people read it.
Table shown_table(const DdpFigures& f) {
  Table table = step_table(
      "strategy", f.rows,
      {"bucket_mb", "step_ms", "communication_ms", "exposed_ms", "calls", "bytes_sent", "ratio"});
  table.rows.front()[0] = "no communication";
  return table;
}

// Of the traced steps of a row, the one whose time is nearest to the median.
Window typical_step(const StepRow& row, const std::vector<RankTrace>& traces) {
  auto steps = recorded_steps(traces);
  std::erase_if(steps,
                [&](const auto& step) { return !step.first.ends_with(" of " + row.text()); });
  const auto distance = [&](const auto& step) {
    return std::abs(step.second.seconds() - row.step_seconds);
  };
  return std::ranges::min_element(steps, {}, distance)->second;
}

// The strategies whose tracks the report shows: naive, overlap, and bucketed with its fastest size;
// or the first if none of them was measured.
std::vector<StepRow> shown_rows(const DdpFigures& f) {
  std::vector<StepRow> shown;
  for (const StepRow& row : f.rows)
    if (row.name == "naive" || row.name == "overlap") shown.push_back(row);
  const auto bucketed = f.bucketed();
  if (!bucketed.empty())
    shown.push_back(*std::ranges::min_element(bucketed, {}, &StepRow::step_seconds));
  if (shown.empty()) shown.push_back(f.rows.at(1));
  return shown;
}

}  // namespace

std::vector<StepRow> DdpFigures::bucketed() const {
  std::vector<StepRow> found;
  for (const StepRow& row : rows)
    if (row.bucket_mb && row.calls > 0) found.push_back(row);
  return found;
}

Chart bucket_chart(const DdpFigures& f) {
  const ddp::BucketModel& model = f.forecast.model;
  const double total = f.gradient_bytes, best = model.best_bucket_bytes(total);
  Series formula{"formula: s/(w n) + n o", Series::dashed, {}, 8},
      followed{"buckets followed in time", Series::line, {}, 8},
      exposed{"measured: exposed", Series::dots, {}, 5},
      over{"measured: step minus step without communication", Series::dots, {}, 7};
  double smallest = best > 0 ? std::min(total / 200, best / 3) : total / 200, largest = total;
  for (const StepRow& row : f.bucketed()) {
    const double bytes = total / static_cast<double>(row.calls);
    smallest = std::min(smallest, bytes), largest = std::max(largest, bytes);
    exposed.points.emplace_back(bytes / 1e6, row.exposed_seconds * 1e3);
    over.points.emplace_back(bytes / 1e6, (row.step_seconds - f.rows.front().step_seconds) * 1e3);
  }
  for (int i = 0; i <= 60; ++i) {
    const double bytes = smallest * std::pow(largest / smallest, i / 60.0);
    formula.points.emplace_back(bytes / 1e6, model.exposed_seconds(total, total / bytes) * 1e3);
  }
  for (const BucketSize& size : f.forecast.sizes)
    followed.points.emplace_back(size.mean_bytes() / 1e6, f.forecast.exposed(size) * 1e3);
  return {"Exposed communication by bucket size",
          {"mean bucket size (MB)", true},
          {"ms per step", true},
          {formula, followed, exposed, over}};
}

Figure bucket_figure(const DdpFigures& f) {
  return {
      "How large should a bucket be?", drawing_of(bucket_chart(f)),
      predictions(f) +
          ". The formula of n buckets is s/(w n) + n o. It holds where backward is slower than "
          "the network. The other curve follows each bucket from the time when it is ready, and "
          "holds on any network.",
      step_table("strategy", f.bucketed(),
                 {"bucket_mb", "calls", "model_exposed_ms", "followed_exposed_ms", "exposed_ms",
                  "step_ms"})};
}

CommandResult result_of(const DdpFigures& f) {
  const ddp::BucketModel& model = f.forecast.model;
  Json fitted = Json::array();
  for (const auto& [bytes, seconds] : f.forecast.all_reduces)
    fitted.push_back({{"bytes", static_cast<std::int64_t>(bytes)},
                      {"time_us", seconds * 1e6},
                      {"model_us", model.call_seconds(bytes) * 1e6}});
  return {fmt::format("{}\n{}{}",
                      wrap(fmt::format("{}; medians of {} steps", f.run.title, f.steps), 80),
                      shown_table(f).text(), wrap(predictions(f), 80) + "\n"),
          {{"rows", step_table("strategy", f.rows, {}).json(f.run.facts)},
           {"bucket_model",
            {{"gradient_bytes", static_cast<std::int64_t>(f.gradient_bytes)},
             {"overhead_us", model.overhead * 1e6},
             {"bandwidth_gbps", model.bandwidth / 1e9},
             {"backward_ms", f.forecast.backward * 1e3},
             {"best_followed_mb", f.forecast.best().mb},
             {"best_bucket_mb", model.best_bucket_bytes(f.gradient_bytes) / 1e6},
             {"all_reduces", fitted}}}}};
}

Report ddp_report(const DdpFigures& f, const std::vector<RankTrace>& traces) {
  Report report{
      "Data parallelism",
      {{"run", f.run.title},
       {"gradients", fmt::format("{:.1f} MB", f.gradient_bytes / 1e6)},
       {"steps", fmt::format("{}, the strategies in turn; medians", f.steps)}},
      {{"The strategies side by side",
        {},
        "network: time in which calls were running. exposed: time in which the rank waited "
        "for them, including for slower ranks. step, network and exposed are those of the "
        "slowest rank. ratio: step time divided by the step time without communication, in "
        "which each rank does the same work alone.",
        shown_table(f)}}};
  const std::vector<StepRow> shown = shown_rows(f);
  double scale = 0;
  for (const StepRow& row : shown) scale = std::max(scale, typical_step(row, traces).seconds());
  for (const StepRow& row : shown)
    report.figures.push_back(
        tracks_figure("One step: " + row.text(), traces, typical_step(row, traces), scale));
  if (!f.bucketed().empty()) report.figures.push_back(bucket_figure(f));
  return report;
}

}  // namespace ringside::cli
