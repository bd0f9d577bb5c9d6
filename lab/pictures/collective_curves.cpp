#include "lab/pictures/collective_curves.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/pictures/chart.hpp"
#include "cli/pictures/numbers.hpp"
#include "lab/pictures/account.hpp"

namespace ringside::cli {

using planning::CollectiveTime;
using planning::Machine;

namespace {

const CollectiveTime& fastest_of(const std::vector<CollectiveTime>& row) {
  return *std::ranges::min_element(row, {}, &CollectiveTime::seconds);
}

}  // namespace

CollectiveTimes collective_times(collectives::Collective collective,
                                 const std::vector<std::string>& algorithms,
                                 const std::vector<std::string>& sizes, std::int64_t ranks,
                                 const Machine& machine) {
  CollectiveTimes all;
  for (const std::string& bytes : sizes) {
    const std::uint64_t number = parse_bytes(bytes);
    require(number > 0, "--bytes {}: at least one byte is needed", bytes);
    all.emplace_back();
    for (const std::string& algorithm : algorithms)
      all.back().push_back(
          planning::collective_time(collective, algorithm, ranks, number, machine));
  }
  return all;
}

std::string collective_table(const CollectiveTimes& times, const Machine& machine) {
  const CollectiveTime& first = times.front().front();
  Table table{{number("bytes", "", {}, 7)}, {}, 0};
  for (const CollectiveTime& time : times.front()) table.head.push_back(time.algorithm);
  table.head.push_back("busbw");
  for (const auto& row : times) {
    const CollectiveTime& best = fastest_of(row);
    std::vector<Cell>& cells = table.rows.emplace_back(1, bytes_to_text(row.front().bytes));
    for (const CollectiveTime& time : row)
      cells.push_back(text_with_unit(time.seconds, planning::Unit::seconds) +
                      (&time == &best ? '*' : ' '));
    cells.push_back(table_number(best.busbw() / 1e9));
  }
  const bool walked = std::ranges::any_of(times.front(), &CollectiveTime::walked);
  return fmt::format("{} on {} of {}, over {}; times from {}\n{}", name_of(first.collective),
                     counted(first.ranks, "rank"), machine.name,
                     machine.level_for(first.ranks).name,
                     walked ? "the walked schedules" : "the closed forms", table.text());
}

Json collective_json(const CollectiveTimes& times, const Machine& machine) {
  Json all = Json::array();
  for (const auto& row : times)
    for (const CollectiveTime& time : row)
      all.push_back({{"collective", name_of(time.collective)},
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

Figure collective_figure(const CollectiveTimes& times, const Machine& machine) {
  const std::int64_t ranks = times.front().front().ranks;
  Chart chart{
      fmt::format("Time, {} over {}", counted(ranks, "rank"), machine.level_for(ranks).name),
      {.label = "bytes", .log = true, .tick = size_text},
      {.label = "time", .log = true, .tick = microseconds_text},
      {}};
  for (const CollectiveTime& time : times.front())
    chart.series.push_back({time.algorithm, Series::line, {}});
  for (const auto& row : times)
    for (std::size_t a = 0; a < row.size(); ++a)
      chart.series[a].points.emplace_back(static_cast<double>(row[a].bytes), row[a].seconds * 1e6);
  return {chart.title, draw(chart), "", table_of(chart)};
}

}  // namespace ringside::cli
