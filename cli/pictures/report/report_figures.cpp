#include "cli/pictures/report/report_figures.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/palette.hpp"

namespace ringside::cli {
Figure memory_figure(const RankTrace& trace, const Window& window) {
  Chart chart{
      "Memory held during a step", {"time since the step began (ms)"}, {"MB (10^6 bytes)"}, {}};
  Figure figure{
      fmt::format("Memory of rank {} over one step", trace.rank), "", "", {{"time (ms)"}, {}}};
  for (const auto& kind : trace.memory_kinds) {
    chart.series.push_back({kind, Series::area, {}, colour_of(kind)});
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
    std::vector<Cell> row{fmt::format("{:.1f}", at)};
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
                                 in_ms(model.exposed_seconds(total, m.calls)), in_ms(m.followed),
                                 in_ms(m.exposed), in_ms(m.over_compute)});
  return figure;
}

}  // namespace ringside::cli
