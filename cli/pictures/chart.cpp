#include "cli/pictures/chart.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/pictures/numbers.hpp"

namespace ringside::cli {
namespace {

Json drawing_of(const Axis& axis) {
  return {{"label", axis.label}, {"log", axis.log}, {"unit", axis.is_size ? "bytes" : ""}};
}

Json drawing_of(const Series& series) {
  constexpr const char* styles[] = {"line", "dashed", "dots", "area"};
  Json drawing = {{"name", series.name}, {"style", styles[series.style]}};
  if (series.colour >= 0) drawing["colour"] = series.colour;
  drawing["points"] = series.points;
  return drawing;
}

}  // namespace

Json drawing_of(const Chart& chart) {
  const auto shows = [](const Axis& axis, double value) {
    return std::isfinite(value) && (!axis.log || value > 0);
  };
  bool is_empty = true;
  Json series = Json::array();
  for (const Series& each : chart.series) {
    for (const auto& [x, y] : each.points) is_empty &= !(shows(chart.x, x) && shows(chart.y, y));
    series.push_back(drawing_of(each));
  }
  require(!is_empty, "there is nothing to draw: the axis can show none of the values");
  return {{"kind", "chart"},
          {"x", drawing_of(chart.x)},
          {"y", drawing_of(chart.y)},
          {"series", series}};
}

Json picture_of(const std::string& title, const std::vector<Chart>& charts) {
  Json drawings = Json::array();
  for (const Chart& chart : charts)
    drawings.push_back({{"title", chart.title}, {"drawing", drawing_of(chart)}});
  return {{"title", title}, {"charts", drawings}};
}

Table table_of(const Chart& chart) {
  const Show digits = [](double number) { return fmt::format("{:.4g}", number); };
  const Show size = chart.x.is_size ? Show(size_text) : Show();
  Table table{{number(chart.x.label, "", size)}};
  std::map<double, std::vector<Cell>> rows;
  for (const Series& series : chart.series) {
    table.head.push_back(number(series.name, "", digits));
    for (const auto& [x, y] : series.points) {
      std::vector<Cell>& row = rows[x];
      row.resize(chart.series.size() + 1);
      row.front() = x, row[table.head.size() - 1] = y;
    }
  }
  const std::size_t every = std::max<std::size_t>(1, rows.size() / 24);
  std::size_t i = 0;
  for (const auto& [x, row] : rows)
    if (i++ % every == 0 || i == rows.size()) table.rows.push_back(row);
  return table;
}

}  // namespace ringside::cli
