#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "cli/bench/plan.hpp"
#include "cli/bench/report.hpp"
#include "cli/report/numbers.hpp"

namespace ringside::cli {
namespace {

// Colours with contrast on white and on near-black.
constexpr std::array colours{"#2f7ed8", "#e0662f", "#2e9e5b", "#b04ac0",
                             "#b58900", "#d0405f", "#179a9a"};

constexpr double panel_width = 430, panel_height = 300, left = 56, right = 28, top = 52,
                 bottom = 46, legend_line = 20;

// A logarithmic axis: from the power of ten below all values to the one above them.
struct Scale {
  double low = 0, high = 1;  // log10
  double from = 0, to = 1;   // positions

  double operator()(double value) const {
    return from + (std::log10(value) - low) / (high - low) * (to - from);
  }
};

Scale scale_for(double smallest, double largest, double from, double to) {
  Scale scale{std::floor(std::log10(smallest) + 1e-9), std::ceil(std::log10(largest) - 1e-9), from,
              to};
  if (scale.high <= scale.low) scale.high = scale.low + 1;
  return scale;
}

using Point = std::pair<double, double>;                   // bytes, busbw
using Series = std::map<std::string, std::vector<Point>>;  // by backend, or by "limit of ..."

// The name of a row's limit. Backends with the same kind of limit share one line.
std::string limit_name(const Json& row) {
  const Limit limit = bench_backend_named(row.at("backend").get<std::string>()).limit;
  if (limit == Limit::device) return "bare kernel on the GPU";
  return limit == Limit::tcp ? "bare ring of sockets" : "bare copies in memory";
}

// The lines of one panel. A backend without a figure above zero has no line.
Series lines_of(const std::vector<Json>& rows, int ranks, bool limits) {
  Series lines;
  for (const auto& row : rows) {
    if (row.at("ranks") != ranks) continue;
    const double value = row.at(limits ? "limit_gbps" : "busbw_gbps");
    auto& line = lines[limits ? limit_name(row) : row.at("backend").get<std::string>()];
    const double bytes = row.at("bytes");
    if (value > 0 && bytes > 0 && (line.empty() || line.back().first != bytes))
      line.emplace_back(bytes, value);
  }
  return lines;
}

// The backends in the order of measurement, which determines their colours.
std::vector<std::string> backends_in(const std::vector<Json>& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows)
    if (std::find(names.begin(), names.end(), row.at("backend")) == names.end())
      names.push_back(row.at("backend"));
  return names;
}

std::string text(double x, double y, const std::string& words, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, more, words);
}

std::string axes(const Scale& x, const Scale& y) {
  std::string svg;
  for (double power = x.low; power <= x.high; ++power) {
    const double at = x(std::pow(10, power));
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n", at,
        y.from, y.to);
    svg += text(at, y.from + 16,
                bytes_to_text(static_cast<std::uint64_t>(std::llround(std::pow(10, power)))),
                " text-anchor=\"middle\"");
  }
  for (double power = y.low; power <= y.high; ++power) {
    const double at = y(std::pow(10, power));
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{1:.1f}\" x2=\"{2:.1f}\" y1=\"{0:.1f}\" y2=\"{0:.1f}\"/>\n", at,
        x.from, x.to);
    svg +=
        text(x.from - 6, at + 4, fmt::format("{:g}", std::pow(10, power)), " text-anchor=\"end\"");
  }
  return svg;
}

std::string line(const std::vector<Point>& points, const Scale& x, const Scale& y,
                 const std::string& style) {
  std::string svg, path;
  for (const auto& [bytes, value] : points)
    path += fmt::format("{:.1f},{:.1f} ", x(bytes), y(value));
  if (points.size() > 1)
    svg += fmt::format("<polyline fill=\"none\" points=\"{}\" {}/>\n", path, style);
  return svg;
}

std::string dots(const std::vector<Point>& points, const Scale& x, const Scale& y,
                 const std::string& style) {
  std::string svg;
  for (const auto& [bytes, value] : points)
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" {}/>\n", x(bytes), y(value),
                       style);
  return svg;
}

std::string style_of(const std::string& backend, const std::vector<std::string>& backends) {
  const auto position = static_cast<std::size_t>(
      std::find(backends.begin(), backends.end(), backend) - backends.begin());
  return fmt::format("style=\"stroke:{0};fill:{0}\" class=\"line\"",
                     colours[position % colours.size()]);
}

// Limits are dashed lines, each with its own dashes.
std::string limit_style(const std::string& name) {
  return fmt::format("class=\"limit\" stroke-dasharray=\"{}\"",
                     name == "bare ring of sockets" ? "7 4" : "1.5 3.5");
}

std::string head(double width, double height) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 "
      "0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" "
      "font-size=\"11\">\n<style>\n"
      ".paper {{ fill: #ffffff; }} text {{ fill: #333333; }} .grid {{ stroke: #8888884d; }}\n"
      ".line {{ stroke-width: 2; }} polyline.line {{ fill: none !important; }}\n"
      ".limit {{ stroke: #888888; stroke-width: 1.5; fill: none; }}\n"
      "@media (prefers-color-scheme: dark) {{ .paper {{ fill: #16191d; }} text {{ fill: #d8dce0; "
      "}} }}\n"
      "</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
      width, height);
}

std::string legend(const std::vector<std::string>& backends, const Series& limits, double y) {
  std::string svg;
  double x = left;
  const auto entry = [&](const std::string& name, const std::string& style) {
    svg += fmt::format("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x,
                       x + 22, y - 4, y - 4, style);
    svg += text(x + 28, y, name);
    x += 46 + 6.2 * static_cast<double>(name.size());
  };
  for (const auto& backend : backends) entry(backend, style_of(backend, backends));
  x = left, y += legend_line;
  for (const auto& [name, points] : limits)
    if (!points.empty()) entry("the machine's limit: " + name, limit_style(name));
  return svg;
}

}  // namespace

std::string bench_plot(const std::vector<Json>& rows) {
  std::vector<int> ranks;
  double least = 1e300, most = 0, fewest_bytes = 1e300, most_bytes = 0;
  for (const auto& row : rows) {
    if (std::find(ranks.begin(), ranks.end(), row.at("ranks")) == ranks.end())
      ranks.push_back(row.at("ranks"));
    for (const char* key : {"busbw_gbps", "limit_gbps"}) {
      const double value = row.at(key), bytes = row.at("bytes");
      if (value <= 0 || bytes <= 0) continue;
      least = std::min(least, value), most = std::max(most, value);
      fewest_bytes = std::min(fewest_bytes, bytes), most_bytes = std::max(most_bytes, bytes);
    }
  }
  require(most > 0, "there is nothing to draw: no bandwidth above zero was measured");

  const auto backends = backends_in(rows);
  const double width = std::max(panel_width * static_cast<double>(ranks.size()), 620.0),
               height = panel_height + 2 * legend_line + 6;
  std::string svg = head(width, height);
  svg += text(left, 20,
              fmt::format("{} of {}: bus bandwidth by size, 10^9 bytes/s",
                          rows.front().at("collective").get<std::string>(),
                          rows.front().at("type").get<std::string>()),
              " font-size=\"14\"");
  Series limits;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const double begin = panel_width * static_cast<double>(i);
    const Scale x = scale_for(fewest_bytes, most_bytes, begin + left, begin + panel_width - right);
    const Scale y = scale_for(least, most, panel_height - bottom, top);
    svg += axes(x, y) +
           text(begin + left, top - 8, counted(ranks[i], "rank"), " font-weight=\"bold\"");
    limits = lines_of(rows, ranks[i], true);
    for (const auto& [name, points] : limits) svg += line(points, x, y, limit_style(name));
    for (const auto& [name, points] : lines_of(rows, ranks[i], false)) {
      const std::string style = style_of(name, backends);
      svg += line(points, x, y, style) + dots(points, x, y, style);
    }
  }
  return svg + legend(backends, limits, panel_height + 6) + "</svg>\n";
}

}  // namespace ringside::cli
