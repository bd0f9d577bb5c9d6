#include "cli/pictures/chart.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/svg.hpp"

namespace ringside::cli {
namespace {

constexpr double width = 460, plot_height = 240, left = 54, right = 18, bottom = 44,
                 legend_row = 19, letter = 6.7;

using Points = std::vector<std::pair<double, double>>;

// Maps the values of an axis to positions in the drawing.
struct Scale {
  bool log = false;
  // Of the values; on a logarithmic axis their logarithms.
  double low = std::numeric_limits<double>::infinity(), high = -low;
  double from = 0, to = 1;  // positions

  bool shows(double value) const { return std::isfinite(value) && (!log || value > 0); }
  double at(double value) const { return log ? std::log10(value) : value; }
  double operator()(double value) const {
    return from + (at(value) - low) / (high - low) * (to - from);
  }
  void include(double value) { low = std::min(low, at(value)), high = std::max(high, at(value)); }
  void place(double begin, double end, bool from_zero) {
    require(high >= low, "there is nothing to draw: the axis can show none of the values");
    from = begin, to = end;
    if (from_zero && !log) low = std::min(low, 0.0);
    if (!log && high <= low) high = low + 1;
    const double room = log ? std::max(0.05 * (high - low), 0.05) : 0.04 * (high - low);
    if (log) low -= room;
    if (log || from_zero) high += room;
  }
};

// The ticks of a logarithmic axis: powers of ten, and 2 and 5 times these if there are few.
std::vector<double> log_ticks(const Scale& scale) {
  std::vector<double> ticks;
  const bool few = scale.high - scale.low < 2.2;
  for (double power = std::floor(scale.low); power <= scale.high; ++power)
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double at = power + std::log10(factor);
      if ((few || factor == 1) && at >= scale.low && at <= scale.high)
        ticks.push_back(std::pow(10, at));
    }
  return ticks;
}

std::string text(double x, double y, const std::string& words, const char* anchor,
                 const char* kind = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, kind, escaped(words));
}

std::string grid_line(double x1, double y1, double x2, double y2) {
  return fmt::format(
      "<line class=\"grid\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" />\n", x1, y1,
      x2, y2);
}

std::string tick_text(const Axis& axis, double tick) {
  return axis.tick ? axis.tick(tick) : fmt::format("{:g}", tick);
}

std::string axes(const Chart& chart, const Scale& x, const Scale& y) {
  std::string svg;
  for (const double tick : x.log ? log_ticks(x) : round_ticks(x.low, x.high, 6))
    svg += grid_line(x(tick), y.from, x(tick), y.to) +
           text(x(tick), y.from + 16, tick_text(chart.x, tick), "middle");
  for (const double tick : y.log ? log_ticks(y) : round_ticks(y.low, y.high, 5))
    svg += grid_line(x.from, y(tick), x.to, y(tick)) +
           text(x.from - 6, y(tick) + 4, tick_text(chart.y, tick), "end");
  svg += text((x.from + x.to) / 2, y.from + 36, chart.x.label, "middle", " class=\"soft\"");
  return svg + text(4, y.to - 9, chart.y.label, "start", " class=\"soft\"");
}

// Areas become the outlines of their stack.
std::vector<Series> stacked(std::vector<Series> all) {
  Points below;  // the upper edge of the area before
  for (Series& series : all) {
    if (series.style != Series::area) continue;
    Points edge = series.points;
    if (below.empty())
      for (const auto& [x, y] : edge) below.emplace_back(x, 0);
    for (std::size_t i = 0; i < edge.size(); ++i) edge[i].second += below[i].second;
    series.points = edge;
    series.points.insert(series.points.end(), below.rbegin(), below.rend());
    below = edge;
  }
  return all;
}

std::string circle(double x, double y, const std::string& attributes) {
  return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\" {} />\n", x, y, attributes);
}

std::string draw_series(const Series& series, int colour, const Scale& x, const Scale& y) {
  std::string circles, points;
  for (const auto& [a, b] : series.points) {
    if (!x.shows(a) || !y.shows(b)) continue;
    points += fmt::format("{:.1f},{:.1f} ", x(a), y(b));
    circles += circle(x(a), y(b),
                      fmt::format("class=\"mark c{}\" role=\"img\" tabindex=\"-1\" "
                                  "aria-label=\"{}: {:.4g} at {:.4g}\"",
                                  colour, escaped(series.name), b, a));
  }
  if (series.style == Series::dots) return circles;
  return fmt::format("<{} class=\"c{}{}\" points=\"{}\" />\n",
                     series.style == Series::area ? "polygon" : "polyline", colour,
                     series.style == Series::dashed ? " dashed" : "", points);
}

std::string legend_sign(Series::Style style, int colour, double x, double y) {
  if (style == Series::dots) return circle(x + 8, y - 4, fmt::format("class=\"c{}\"", colour));
  if (style == Series::area)
    return fmt::format(
        "<rect class=\"c{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"11\" />\n", colour,
        x + 1, y - 10);
  return fmt::format("<polyline class=\"c{}{}\" points=\"{:.1f},{:.1f} {:.1f},{:.1f}\" />\n",
                     colour, style == Series::dashed ? " dashed" : "", x, y - 4, x + 16, y - 4);
}

int colour_of(const Chart& chart, std::size_t i) {
  return chart.series[i].colour >= 0 ? chart.series[i].colour : static_cast<int>(i % 8);
}

// The legend, in as many rows as it needs. Sets `height` to the baseline of the last row.
std::string legend(const Chart& chart, double& height) {
  std::string svg;
  double x = 4;
  height = 16;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const auto& series = chart.series[i];
    const double needed = 22 + letter * static_cast<double>(series.name.size()) + 14;
    if (x > 4 && x + needed > width) x = 4, height += legend_row;
    svg += legend_sign(series.style, colour_of(chart, i), x, height) +
           text(x + 21, height, series.name, "start");
    x += needed;
  }
  return svg;
}

// Draws a chart, and sets the height of the drawing.
std::string draw_to(const Chart& chart, double& height) {
  const std::vector<Series> all = stacked(chart.series);
  Scale x{chart.x.log}, y{chart.y.log};
  for (const auto& series : all)
    for (const auto& [a, b] : series.points)
      if (x.shows(a) && y.shows(b)) x.include(a), y.include(b);
  double top = 0;
  std::string svg = legend(chart, top);
  top += 30;
  x.place(left, width - right, false);
  y.place(top + plot_height, top, true);
  height = top + plot_height + bottom;
  svg += axes(chart, x, y);
  for (std::size_t i = 0; i < all.size(); ++i)
    svg += draw_series(all[i], colour_of(chart, i), x, y);
  return fmt::format(
      "<svg class=\"chart\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"group\" aria-label=\"{}\">\n"
      "{}</svg>\n",
      width, height, escaped(chart.title), svg);
}

}  // namespace

std::string draw(const Chart& chart) {
  double height = 0;
  return draw_to(chart, height);
}

Table table_of(const Chart& chart) {
  const Show digits = [](double number) { return fmt::format("{:.4g}", number); };
  Table table{
      {number(chart.x.label, "", [axis = chart.x](double x) { return tick_text(axis, x); })}};
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

std::vector<double> round_ticks(double low, double high, int wanted) {
  require(high > low && wanted >= 1, "there are no ticks from {} to {}: the range is empty", low,
          high);
  const double rough = (high - low) / wanted, power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= rough * 0.999) step = factor * power;
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i)
    ticks.push_back(i == 0 ? 0 : i * step);
  return ticks;
}

std::string svg_file(const std::string& title, const std::vector<Chart>& charts) {
  constexpr double title_height = 24;
  double y = title_height;
  std::string panels = text(4, 16, title, "start");
  for (const Chart& chart : charts) {
    double height = 0;
    std::string panel = draw_to(chart, height);
    panel.insert(std::string("<svg").size(), fmt::format(" y=\"{}\" width=\"{}\" height=\"{}\"",
                                                         y + title_height, width, height));
    panels += text(4, y + 16, chart.title, "start") + panel;
    y += title_height + height;
  }
  return svg_file(title, width, y, chart_style(), "<g class=\"chart\">\n" + panels + "</g>\n");
}

}  // namespace ringside::cli
