#include "cli/pictures/chart.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/palette.hpp"

namespace ringside::cli {
namespace {

constexpr double width = 460, plot_height = 240, left = 54, right = 18, bottom = 44,
                 legend_row = 19, letter = 6.7;

// Maps values to positions in the drawing.
struct Scale {
  bool log = false;
  double low = 0, high = 1;  // values; on a logarithmic axis their logarithms
  double from = 0, to = 1;   // positions

  bool shows(double value) const { return std::isfinite(value) && (!log || value > 0); }
  double operator()(double value) const {
    return from + ((log ? std::log10(value) : value) - low) / (high - low) * (to - from);
  }
};

using Range = std::pair<double, double>;

// The smallest and the largest value of an axis.
Range range_of(const std::vector<double>& values, bool log) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double value : values) {
    if (!std::isfinite(value) || (log && value <= 0)) continue;
    low = std::min(low, value), high = std::max(high, value);
  }
  require(high >= low, "there is nothing to draw: the axis can show none of the values");
  return {low, high};
}

Scale scale_for(const Axis& axis, Range range, bool from_zero, double from, double to) {
  Scale scale{axis.log, range.first, range.second, from, to};
  if (axis.log) {
    scale.low = std::log10(range.first), scale.high = std::log10(range.second);
    const double room = std::max(0.05 * (scale.high - scale.low), 0.05);
    scale.low -= room, scale.high += room;
    return scale;
  }
  if (from_zero && scale.low >= 0) scale.low = 0;
  if (scale.high <= scale.low) scale.high = scale.low + 1;
  if (from_zero) scale.high += 0.04 * (scale.high - scale.low);
  return scale;
}

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

std::string axes(const Chart& chart, const Scale& x, const Scale& y) {
  std::string svg;
  for (const double tick : x.log ? log_ticks(x) : round_ticks(x.low, x.high, 6)) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" />\n",
        x(tick), y.from, y.to);
    const std::string words = chart.x.is_bytes
                                  ? bytes_to_text(static_cast<std::uint64_t>(std::llround(tick)))
                                  : fmt::format("{:g}", tick);
    svg += text(x(tick), y.from + 16, words, "middle");
  }
  for (const double tick : y.log ? log_ticks(y) : round_ticks(y.low, y.high, 5)) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{1:.1f}\" x2=\"{2:.1f}\" y1=\"{0:.1f}\" y2=\"{0:.1f}\" />\n",
        y(tick), x.from, x.to);
    svg += text(x.from - 6, y(tick) + 4, fmt::format("{:g}", tick), "end");
  }
  svg += text((x.from + x.to) / 2, y.from + 36, chart.x.label, "middle", " class=\"soft\"");
  return svg + text(4, y.to - 9, chart.y.label, "start", " class=\"soft\"");
}

std::string points_of(const std::vector<std::pair<double, double>>& points, const Scale& x,
                      const Scale& y) {
  std::string path;
  for (const auto& [a, b] : points)
    if (x.shows(a) && y.shows(b)) path += fmt::format("{:.1f},{:.1f} ", x(a), y(b));
  return path;
}

// A ring goes round the dots and lines at its place.
std::string shape_of(Series::Style style, int colour) {
  return fmt::format("{}c{}", style == Series::rings ? "ring " : "", colour);
}

double radius_of(Series::Style style) {
  return style == Series::rings ? 7.5 : 4.5;
}

std::string draw_series(const Series& series, int colour, const Scale& x, const Scale& y,
                        std::vector<double>& stacked) {
  const auto style = fmt::format("c{}", colour);
  if (series.style == Series::line || series.style == Series::dashed)
    return fmt::format("<polyline class=\"{}{}\" points=\"{}\" />\n", style,
                       series.style == Series::dashed ? " dashed" : "",
                       points_of(series.points, x, y));
  std::string svg;
  if (series.style == Series::dots || series.style == Series::rings) {
    for (const auto& [a, b] : series.points)
      if (x.shows(a) && y.shows(b))
        svg += fmt::format(
            "<circle class=\"mark {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" role=\"img\" "
            "tabindex=\"-1\" aria-label=\"{}: {:.4g} at {:.4g}\" />\n",
            shape_of(series.style, colour), x(a), y(b), radius_of(series.style),
            escaped(series.name), b, a);
    return svg;
  }
  stacked.resize(series.points.size(), 0);
  std::vector<std::pair<double, double>> outline;
  for (std::size_t i = 0; i < series.points.size(); ++i)
    outline.emplace_back(series.points[i].first, stacked[i] + series.points[i].second);
  for (std::size_t i = series.points.size(); i-- > 0;)
    outline.emplace_back(series.points[i].first, stacked[i]);
  for (std::size_t i = 0; i < series.points.size(); ++i) stacked[i] += series.points[i].second;
  return fmt::format("<polygon class=\"{}\" points=\"{}\" />\n", style, points_of(outline, x, y));
}

std::string legend_sign(Series::Style style, int colour, double x, double y) {
  if (style == Series::dots || style == Series::rings)
    return fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" />\n",
                       shape_of(style, colour), x + 8, y - 4, radius_of(style));
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

}  // namespace

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
  return safe;
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

namespace {

// Draws a chart, and sets the height of the drawing.
std::string draw_to(const Chart& chart, double& height) {
  std::vector<double> xs, ys, sums;
  for (const auto& series : chart.series)
    for (std::size_t i = 0; i < series.points.size(); ++i) {
      double value = series.points[i].second;
      if (series.style == Series::area) {
        if (sums.size() <= i) sums.resize(i + 1, 0);
        value = sums[i] += value;
      }
      if ((chart.x.log && series.points[i].first <= 0) || (chart.y.log && value <= 0)) continue;
      xs.push_back(series.points[i].first), ys.push_back(value);
    }
  double top = 0;
  std::string signs = legend(chart, top);
  top += 30;
  const Scale x = scale_for(chart.x, range_of(xs, chart.x.log), false, left, width - right);
  const Scale y = scale_for(chart.y, range_of(ys, chart.y.log), true, top + plot_height, top);
  height = top + plot_height + bottom;
  std::string svg = fmt::format(
      "<svg class=\"chart\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"group\" aria-label=\"{}\">\n",
      width, height, escaped(chart.title));
  svg += signs + axes(chart, x, y);
  std::vector<double> stacked;
  for (std::size_t i = 0; i < chart.series.size(); ++i)
    svg += draw_series(chart.series[i], colour_of(chart, i), x, y, stacked);
  return svg + "</svg>\n";
}

// A file of `svg`, with a title and the style.
std::string with_style(std::string svg, const std::string& title) {
  const auto after_name = std::string("<svg").size(), after_tag = svg.find(">\n") + 2;
  svg.insert(after_tag, fmt::format("<title>{}</title>\n<style>{}</style>\n<rect class=\"paper\" "
                                    "width=\"100%\" height=\"100%\" />\n",
                                    escaped(title), chart_style()));
  svg.insert(after_name, " xmlns=\"http://www.w3.org/2000/svg\"");
  return svg;
}

}  // namespace

std::string draw(const Chart& chart) {
  double height = 0;
  return draw_to(chart, height);
}

std::string svg_file(const Chart& chart) {
  return with_style(draw(chart), chart.title);
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
  return with_style(fmt::format("<svg class=\"chart\" viewBox=\"0 0 {:.0f} {:.0f}\">\n{}</svg>\n",
                                width, y, panels),
                    title);
}

std::string chart_style() {
  return std::string(palette()) + R"(
.chart { font: 12px system-ui, sans-serif; }
.chart text { fill: var(--ink); } .chart text.soft { fill: var(--soft); }
.chart polyline { fill: none; stroke: currentColor; stroke-width: 2; }
.chart .dashed { stroke-dasharray: 6 4; }
.chart circle, .chart rect:not(.paper), .chart polygon { fill: currentColor; }
.chart .ring { fill: none; stroke: currentColor; stroke-width: 2.5; }
)";
}

}  // namespace ringside::cli
