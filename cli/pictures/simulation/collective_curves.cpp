#include "cli/pictures/simulation/collective_curves.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/pictures/account/account.hpp"
#include "cli/pictures/chart.hpp"
#include "cli/pictures/numbers.hpp"

namespace ringside::cli {

using planning::CollectiveTime;
using planning::Machine;

namespace {

const CollectiveTime& fastest_of(const std::vector<CollectiveTime>& row) {
  return *std::ranges::min_element(row, {}, &CollectiveTime::seconds);
}

// The column of an algorithm, wide enough for its name.
int width_of(const std::string& name) {
  return std::max<int>(10, static_cast<int>(name.size()) + 2);
}

// A curve for each algorithm; `value` is the time in us or the bandwidth.
Figure figure_of(const std::string& title, const std::string& unit,
                 const std::vector<std::string>& algorithms, const CollectiveTimes& times,
                 double (*value)(const CollectiveTime&)) {
  Chart chart{title, {"bytes", true}, {unit, true}, {}};
  Figure figure{title, "", "", {{"bytes"}, {}}};
  for (std::size_t a = 0; a < algorithms.size(); ++a) {
    Series series{algorithms[a], Series::line, {}, -1};
    for (const auto& row : times)
      series.points.emplace_back(static_cast<double>(row[a].bytes), value(row[a]));
    chart.series.push_back(series);
    figure.table.head.push_back(fmt::format("{} ({})", algorithms[a], unit));
  }
  for (const auto& row : times) {
    std::vector<Cell> cells{bytes_to_text(row.front().bytes)};
    for (const CollectiveTime& time : row) cells.push_back(table_number(value(time)));
    figure.table.rows.push_back(cells);
  }
  figure.drawing = draw(chart);
  return figure;
}

}  // namespace

CollectiveTimes collective_times(const std::vector<std::string>& algorithms,
                                 const std::vector<std::string>& sizes, std::int64_t ranks,
                                 const Machine& machine) {
  CollectiveTimes all;
  for (const std::string& bytes : sizes) {
    const std::uint64_t number = parse_bytes(bytes);
    require(number > 0, "--bytes {}: at least one byte is needed", bytes);
    all.emplace_back();
    for (const std::string& algorithm : algorithms)
      all.back().push_back(planning::all_reduce_time(algorithm, ranks, number, machine));
  }
  return all;
}

std::string collective_table(const std::vector<std::string>& algorithms,
                             const CollectiveTimes& times, const Machine& machine) {
  const CollectiveTime& first = times.front().front();
  std::string text = fmt::format(
      "all_reduce on {} of {}, over {}; times from {}\n{:>9}", counted(first.ranks, "rank"),
      machine.name, machine.level_for(first.ranks).name,
      first.ranks <= planning::most_ranks_walked ? "the walked schedules" : "the closed forms",
      "bytes");
  int width = 9 + 2 + 9 + 9;
  for (const std::string& name : algorithms) {
    text += fmt::format("{:>{}} ", name, width_of(name) - 1);
    width += width_of(name);
  }
  const bool has_algbw = width <= 80;
  text += fmt::format("  {}{:>9}\n", has_algbw ? fmt::format("{:>9}", "algbw") : "", "busbw");
  for (const auto& row : times) {
    text += fmt::format("{:>9}", bytes_to_text(row.front().bytes));
    const CollectiveTime& best = fastest_of(row);
    for (std::size_t a = 0; a < row.size(); ++a)
      text += fmt::format("{:>{}}{}", text_with_unit(row[a].seconds, planning::Unit::seconds),
                          width_of(algorithms[a]) - 1, &row[a] == &best ? '*' : ' ');
    if (has_algbw) text += fmt::format("  {:>9}", table_number(best.algbw() / 1e9));
    text += fmt::format("{}{:>9}\n", has_algbw ? "" : "  ", table_number(best.busbw() / 1e9));
  }
  return text;
}

Json collective_json(const CollectiveTimes& times, const Machine& machine) {
  Json all = Json::array();
  for (const auto& row : times)
    for (const CollectiveTime& time : row)
      all.push_back({{"collective", "all_reduce"},
                     {"machine", machine.name},
                     {"algorithm", time.algorithm},
                     {"ranks", time.ranks},
                     {"bytes", time.bytes},
                     {"time_us", time.seconds * 1e6},
                     {"algbw_gbps", time.algbw() / 1e9},
                     {"busbw_gbps", time.busbw() / 1e9},
                     {"walked", time.walked}});
  return all;
}

std::vector<Figure> collective_figures(const std::vector<std::string>& algorithms,
                                       const CollectiveTimes& times, const Machine& machine) {
  const std::int64_t ranks = times.front().front().ranks;
  const std::string name =
      fmt::format("{} over {}", counted(ranks, "rank"), machine.level_for(ranks).name);
  return {figure_of("Time, " + name, "us", algorithms, times,
                    [](const CollectiveTime& t) { return t.seconds * 1e6; }),
          figure_of("Bus bandwidth, " + name, "GB/s", algorithms, times,
                    [](const CollectiveTime& t) { return t.busbw() / 1e9; })};
}

}  // namespace ringside::cli
