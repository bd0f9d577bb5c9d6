#include <algorithm>

#include "base/error.hpp"
#include "bench/bench_options.hpp"
#include "bench/report.hpp"
#include "cli/pictures/chart.hpp"
#include "cli/pictures/numbers.hpp"

namespace ringside::cli {
namespace {

// Colours of limits: grey, and that of the text. Backends have the colours before.
constexpr int grey = 7, of_text = 8;

// Where the value is in the list, to which it is added if it is new.
template <class List, class Value, class Same>
std::size_t place_of(List& list, const Value& value, Same same) {
  const auto found = std::ranges::find_if(list, same);
  if (found != list.end()) return static_cast<std::size_t>(found - list.begin());
  list.push_back(value);
  return list.size() - 1;
}

// The line of a row's limit. Backends with the same kind of limit share one line.
Series limit_of(const std::string& backend) {
  const Limit limit = bench_backend_named(backend).limit;
  if (limit == Limit::device) return {"limit: bare kernel on the GPU", Series::dashed, {}, of_text};
  return limit == Limit::tcp ? Series{"limit: bare ring of sockets", Series::dashed, {}, of_text}
                             : Series{"limit: bare copies in memory", Series::dashed, {}, grey};
}

// A line without a figure above zero is left out.
void add_point(Chart& chart, const Series& series, double bytes, double value) {
  if (value <= 0 || bytes <= 0) return;
  auto& points = chart
                     .series[place_of(chart.series, series,
                                      [&](const Series& each) { return each.name == series.name; })]
                     .points;
  if (points.empty() || points.back().first != bytes) points.emplace_back(bytes, value);
}

}  // namespace

Json bench_plot(const Json& rows, bool by_algorithm) {
  std::vector<Chart> charts;
  std::vector<std::string> lines;  // in the order of measurement, which determines their colours
  for (const Json& row : rows) {
    const std::string title = counted(row.at("ranks").get<int>(), "rank"),
                      backend = row.at("backend").get<std::string>();
    const Chart empty{
        title, {.label = "size", .log = true, .is_size = true}, {"10^9 bytes/s", true}, {}};
    Chart& chart =
        charts[place_of(charts, empty, [&](const Chart& each) { return each.title == title; })];
    const std::string algorithm = row.at("algorithm"), name = by_algorithm && algorithm != "library"
                                                                  ? backend + " " + algorithm
                                                                  : backend;
    const auto colour = place_of(lines, name, [&](const auto& each) { return each == name; });
    const double bytes = row.at("bytes");
    add_point(chart, {name, Series::line, {}, static_cast<int>(colour % grey)}, bytes,
              row.at("busbw_gbps"));
    add_point(chart, limit_of(backend), bytes, row.at("limit_gbps"));
  }
  std::erase_if(charts, [](const Chart& chart) { return chart.series.empty(); });
  require(!charts.empty(), "there is nothing to draw: no bandwidth above zero was measured");
  for (Chart& chart : charts)
    for (Series& series : chart.series)
      if (series.points.size() == 1) series.style = Series::dots;  // one size makes no line
  return picture_of(fmt::format("{} of {}: bus bandwidth by size",
                                rows.front().at("collective").get<std::string>(),
                                rows.front().at("type").get<std::string>()),
                    charts);
}

}  // namespace ringside::cli
