#include "cli/pictures/lanes.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/pictures/chart.hpp"

namespace ringside::cli {

std::string draw(const Lane& lane, double scale) {
  std::string svg = fmt::format(
      "<span class=\"lane-name\">{}</span>\n<svg class=\"lane\"{} role=\"group\" "
      "aria-label=\"{}\">\n<rect class=\"under\" y=\"2\" width=\"{:.3f}%\" height=\"24\" />\n",
      escaped(lane.name), lane.attributes, escaped(lane.description), 100 * lane.end / scale);
  for (const Mark& mark : lane.marks) {
    const double x = 100 * mark.begin / scale,
                 width = std::max(0.08, 100 * (mark.end - mark.begin) / scale);
    svg += fmt::format(
        "<g class=\"{}\" role=\"img\" tabindex=\"-1\" aria-label=\"{}\"><rect x=\"{:.3f}%\" "
        "y=\"2\" width=\"{:.3f}%\" height=\"24\" />",
        mark.style, escaped(mark.says), x, width);
    constexpr double room_for_text = 17;  // per cent: 60 pixels on a phone
    if (!mark.text.empty() && width > room_for_text)
      svg += fmt::format("<text x=\"{:.3f}%\" dx=\"5\" y=\"18\" aria-hidden=\"true\">{}</text>", x,
                         escaped(mark.text));
    svg += "</g>\n";
  }
  return svg + "</svg>\n";
}

std::string lanes_axis(double scale, const std::string& label) {
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

std::string lanes_legend(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string list = "<ul class=\"legend\">\n";
  for (const auto& [style, words] : entries)
    list += fmt::format(
        "<li><svg aria-hidden=\"true\"><g class=\"{}\"><rect width=\"20\" height=\"12\" "
        "/></g></svg>{}</li>\n",
        style, escaped(words));
  return list + "</ul>\n";
}

}  // namespace ringside::cli
