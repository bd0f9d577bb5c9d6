#include "cli/pictures/report/report_figures.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/palette.hpp"

namespace ringside::cli {

Figure memory_figure(const RankTrace& trace, const Window& window) {
  Chart chart{fmt::format("Memory of rank {} over one step", trace.rank),
              {"time since the step began (ms)"},
              {"MB (10^6 bytes)"},
              {}};
  for (const auto& kind : trace.memory_kinds)
    chart.series.push_back({kind, Series::area, {}, colour_of(kind)});
  double most = 0, most_at = -1;
  for (const auto& sample : trace.memory) {
    if (sample.time < window.begin || sample.time > window.end) continue;
    const double at = (sample.time - window.begin) * 1e3;
    double sum = 0;
    for (std::size_t k = 0; k < chart.series.size(); ++k) {
      const double held = k < sample.bytes.size() ? static_cast<double>(sample.bytes[k]) / 1e6 : 0;
      chart.series[k].points.emplace_back(at, held);
      sum += held;
    }
    if (most_at < 0 || sum > most) most = sum, most_at = at;
  }
  require(most_at >= 0, "there is nothing to draw: no memory was recorded in that step");
  return {chart.title, draw(chart),
          fmt::format("Bytes in tensors after every operation. The peak is {:.1f} MB, {:.1f} ms "
                      "after the step began.",
                      most, most_at),
          table_of(chart)};
}

Figure loss_figure(const std::vector<std::pair<std::int64_t, double>>& bits_per_byte) {
  require(!bits_per_byte.empty(), "there is nothing to draw: no step was taken");
  const auto style = bits_per_byte.size() == 1 ? Series::dots : Series::line;
  const Chart chart{
      "Loss over steps",
      {"step"},
      {"loss (bits per byte)"},
      {{"loss (bits per byte)", style, {bits_per_byte.begin(), bits_per_byte.end()}, 8}}};
  return {chart.title, draw(chart),
          fmt::format("The loss goes from {:.3f} bits per byte in step {} to {:.3f} in step {}.",
                      bits_per_byte.front().second, bits_per_byte.front().first,
                      bits_per_byte.back().second, bits_per_byte.back().first),
          table_of(chart)};
}

Chart bucket_chart(const BucketStudy& study) {
  const double total = study.gradient_bytes, best = study.model.best_bucket_bytes(total);
  Series formula{"formula: s/(w n) + n o", Series::dashed, {}, 8},
      followed{"buckets followed in time", Series::line, {}, 8},
      exposed{"measured: exposed", Series::dots, {}, 5},
      over{"measured: step minus step without communication", Series::dots, {}, 7};
  double smallest = best > 0 ? std::min(total / 200, best / 3) : total / 200, largest = total;
  for (const auto& m : study.measured) {
    const double bytes = total / m.calls;
    smallest = std::min(smallest, bytes), largest = std::max(largest, bytes);
    exposed.points.emplace_back(bytes / 1e6, m.exposed * 1e3);
    over.points.emplace_back(bytes / 1e6, m.over_compute * 1e3);
  }
  for (int i = 0; i <= 60; ++i) {
    const double bytes = smallest * std::pow(largest / smallest, i / 60.0);
    formula.points.emplace_back(bytes / 1e6,
                                study.model.exposed_seconds(total, total / bytes) * 1e3);
  }
  for (const auto& [bytes, seconds] : study.followed)
    followed.points.emplace_back(bytes / 1e6, seconds * 1e3);
  return {"Exposed communication by bucket size",
          {"mean bucket size (MB)", true},
          {"ms per step", true},
          {formula, followed, exposed, over}};
}

Figure bucket_figure(const BucketStudy& study) {
  const auto& [model, total, followed, best_mb, measured] = study;
  Table table{{words("strategy"), number("calls per step", "", fixed(0)),
               number("mean bucket (MB)", "", fixed(2)), number("formula (ms)", "", in_ms),
               number("followed (ms)", "", in_ms), number("exposed (ms)", "", in_ms),
               number("step minus no communication (ms)", "", in_ms)}};
  for (const auto& m : measured)
    table.rows.push_back({m.name, m.calls, total / m.calls / 1e6,
                          model.exposed_seconds(total, m.calls), m.followed, m.exposed,
                          m.over_compute});
  const std::string caption = fmt::format(
      "s = {:.1f} MB of gradients in n buckets; a call costs o = {:.1f} us and the network reduces "
      "w = {:.3f} GB/s, as fitted to all-reduces of the same run. The formula holds where backward "
      "is slower than the network: its best bucket has sqrt(s w o) = {:.2f} MB. The other curve "
      "follows each bucket from the time when it is ready, and holds on any network: its best "
      "limit "
      "is {:g} MB.",
      total / 1e6, model.overhead * 1e6, model.bandwidth / 1e9,
      model.best_bucket_bytes(total) / 1e6, best_mb);
  return {"How large should a bucket be?", draw(bucket_chart(study)), caption, table};
}

}  // namespace ringside::cli
