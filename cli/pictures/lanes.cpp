#include "cli/pictures/lanes.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/pictures/chart.hpp"
#include "cli/pictures/svg.hpp"

namespace ringside::cli {
namespace {

// A mark on a lane of so many pixels. Its text is there if there is room for it.
std::string draw(const Mark& mark, double scale, double pixels) {
  const double x = 100 * mark.begin / scale,
               width = std::max(0.08, 100 * (mark.end - mark.begin) / scale);
  std::string text;
  if (!mark.text.empty() && 4 + 7.5 * static_cast<double>(mark.text.size()) <= pixels * width / 100)
    text = fmt::format("<text x=\"{:.3f}%\" y=\"18\" aria-hidden=\"true\">{}</text>", x + width / 2,
                       escaped(mark.text));
  return fmt::format(
      "<g class=\"{}\" role=\"img\" tabindex=\"-1\" aria-label=\"{}\"><rect x=\"{:.3f}%\" "
      "y=\"2\" width=\"{:.3f}%\" height=\"24\" />{}</g>\n",
      mark.style, escaped(mark.says), x, width, text);
}

std::string draw(const Lane& lane, double scale, double pixels, const std::string& attributes) {
  std::string svg = fmt::format(
      "<svg class=\"lane\"{} role=\"group\" aria-label=\"{}\">\n"
      "<rect class=\"under\" y=\"2\" width=\"{:.3f}%\" height=\"24\" />\n",
      attributes, escaped(lane.description), 100 * lane.end / scale);
  for (const Mark& mark : lane.marks) svg += draw(mark, scale, pixels);
  return svg + "</svg>\n";
}

std::string axis_of(double scale, const std::string& label) {
  std::string svg = "<svg class=\"ticks\" aria-hidden=\"true\">\n";
  for (const double tick : round_ticks(0, scale, 5)) {
    const double x = 100 * tick / scale;
    const char* anchor = x < 2 ? "start" : x > 94 ? "end" : "middle";
    svg += fmt::format(
        "<line x1=\"{0:.2f}%\" x2=\"{0:.2f}%\" y1=\"0\" y2=\"5\" /><text x=\"{0:.2f}%\" y=\"18\" "
        "text-anchor=\"{1}\">{2:g}</text>\n",
        x, anchor, tick);
  }
  return svg + fmt::format("</svg>\n<span class=\"axis\">{}</span>\n", escaped(label));
}

}  // namespace

std::string draw(const std::vector<Lane>& lanes, double scale, const std::string& axis,
                 const std::vector<std::pair<std::string, std::string>>& legend) {
  constexpr double pixels_of_a_phone = 350;
  std::string html = "<div class=\"lanes\">\n";
  for (const Lane& lane : lanes) {
    if (!lane.heading.empty()) html += fmt::format("<h3>{}</h3>\n", escaped(lane.heading));
    html += fmt::format("<span class=\"lane-name\">{}</span>\n", escaped(lane.name)) +
            draw(lane, scale, pixels_of_a_phone, lane.attributes);
  }
  html += axis_of(scale, axis) + "</div>\n<ul class=\"legend\">\n";
  for (const auto& [style, words] : legend)
    html += fmt::format(
        "<li><svg aria-hidden=\"true\"><g class=\"{}\"><rect width=\"20\" height=\"12\" "
        "/></g></svg>{}</li>\n",
        style, escaped(words));
  return html + "</ul>\n";
}

std::string svg_file(const std::string& title, const std::vector<Lane>& lanes, double scale,
                     double pixels) {
  constexpr double margin = 6, row = 31;  // a lane is 28 high
  double left = 30;
  for (const Lane& lane : lanes)
    left = std::max(left, 14 + 7.5 * static_cast<double>(lane.name.size()));
  std::string content;
  double y = margin;
  for (const Lane& lane : lanes) {
    content +=
        fmt::format("<text class=\"name\" x=\"10\" y=\"{:g}\">{}</text>\n", y + 18,
                    escaped(lane.name)) +
        draw(lane, scale, pixels,
             fmt::format(" x=\"{}\" y=\"{}\" width=\"{:.0f}\" height=\"28\"", left, y, pixels));
    y += row;
  }
  return svg_file(title, left + pixels + margin, y + margin, lane_style(), content);
}

}  // namespace ringside::cli
