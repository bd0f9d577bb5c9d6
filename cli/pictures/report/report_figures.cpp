#include "cli/pictures/report/report_figures.hpp"

#include <cmath>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/pictures/chart.hpp"

namespace ringside::cli {

Figure memory_figure(const RankTrace& trace, const Window& window) {
  Chart chart{fmt::format("Memory of rank {} over one step", trace.rank),
              {"time since the step began (ms)"},
              {"MB (10^6 bytes)"},
              {}};
  for (const auto& kind : trace.memory_kinds) chart.series.push_back({kind, Series::area, {}});
  double most = 0, most_at = -1;
  for (const auto& sample : trace.memory) {
    if (sample.time < window.begin || sample.time > window.end) continue;
    const double at = std::round((sample.time - window.begin) * 1e7) / 1e4;
    double sum = 0;
    for (std::size_t k = 0; k < chart.series.size(); ++k) {
      const double held = k < sample.bytes.size() ? static_cast<double>(sample.bytes[k]) / 1e6 : 0;
      chart.series[k].points.emplace_back(at, held);
      sum += held;
    }
    if (most_at < 0 || sum > most) most = sum, most_at = at;
  }
  require(most_at >= 0, "there is nothing to draw: no memory was recorded in that step");
  return {chart.title, drawing_of(chart),
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
  return {chart.title, drawing_of(chart),
          fmt::format("The loss goes from {:.3f} bits per byte in step {} to {:.3f} in step {}.",
                      bits_per_byte.front().second, bits_per_byte.front().first,
                      bits_per_byte.back().second, bits_per_byte.back().first),
          table_of(chart)};
}

}  // namespace ringside::cli
