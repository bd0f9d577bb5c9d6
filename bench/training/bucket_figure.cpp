#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "bench/training/ddp_report.hpp"
#include "cli/pictures/numbers.hpp"

namespace ringside::cli {

Chart bucket_chart(const DdpFigures& f) {
  const ddp::BucketModel& model = f.forecast.model;
  const double total = f.gradient_bytes(), best = model.best_bucket_bytes(total);
  Series formula{"formula: s/(w n) + n o", Series::dashed, {}, 8},
      followed{"buckets followed in time", Series::line, {}, 8},
      exposed{"measured: exposed", Series::dots, {}, 5},
      over{"measured: step minus step without communication", Series::dots, {}, 7};
  double smallest = best > 0 ? std::min(total / 200, best / 3) : total / 200, largest = total;
  for (const StrategyRow& row : f.bucketed()) {
    const double bytes = total / static_cast<double>(row.calls);
    smallest = std::min(smallest, bytes), largest = std::max(largest, bytes);
    exposed.points.emplace_back(bytes / 1e6, row.exposed_seconds * 1e3);
    over.points.emplace_back(bytes / 1e6, f.over_compute(row) * 1e3);
  }
  for (int i = 0; i <= 60; ++i) {
    const double bytes = smallest * std::pow(largest / smallest, i / 60.0);
    formula.points.emplace_back(bytes / 1e6, model.exposed_seconds(total, total / bytes) * 1e3);
  }
  for (const ddp::BucketSize& size : f.forecast.sizes)
    followed.points.emplace_back(size.mean_bytes() / 1e6, f.forecast.exposed(size) * 1e3);
  return {"Exposed communication by bucket size",
          {"mean bucket size (MB)", true},
          {"ms per step", true},
          {formula, followed, exposed, over}};
}

Figure bucket_figure(const DdpFigures& f) {
  const ddp::BucketModel& model = f.forecast.model;
  const double total = f.gradient_bytes();
  Table table{{words("strategy"), number("calls per step", ""),
               number("mean bucket (MB)", "", fixed(2)), number("formula (ms)", "", in_ms),
               number("followed (ms)", "", in_ms), number("exposed (ms)", "", in_ms),
               number("step minus no communication (ms)", "", in_ms)}};
  for (const StrategyRow& row : f.bucketed())
    table.rows.push_back({row.text(), row.calls, total / static_cast<double>(row.calls) / 1e6,
                          f.by_formula(row), f.followed(row), row.exposed_seconds,
                          f.over_compute(row)});
  const std::string caption = fmt::format(
      "s = {:.1f} MB of gradients in n buckets; a call costs o = {:.1f} us and the network reduces "
      "w = {:.3f} GB/s, as fitted to all-reduces of the same run. The formula holds where backward "
      "is slower than the network: its best bucket has sqrt(s w o) = {:.2f} MB. The other curve "
      "follows each bucket from the time when it is ready, and holds on any network: its best "
      "limit is {:g} MB.",
      total / 1e6, model.overhead * 1e6, model.bandwidth / 1e9,
      model.best_bucket_bytes(total) / 1e6, f.forecast.best().mb);
  return {"How large should a bucket be?", draw(bucket_chart(f)), caption, table};
}

}  // namespace ringside::cli
