#include "cli/pictures/pipeline/pipeline_drawing.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/pictures/chart.hpp"
#include "cli/pictures/palette.hpp"

namespace ringside::cli {

using namespace pipeline_parallel;

namespace {

constexpr double row_height = 26, row_gap = 5, left = 30, margin = 6;

// Numbers are in the colour of the paper; on the paler boxes of a second stage
// in that of the ink. So they can be read on both backgrounds.
constexpr const char* style = R"(
.pipeline { font: 600 12px system-ui, sans-serif; }
.pipeline text { fill: var(--paper); text-anchor: middle; }
.pipeline text.rank { fill: var(--ink); }
.pipeline .idle { fill: var(--grid); }
.pipeline :is(.forward, .backward, .weight) { fill: currentColor; }
.pipeline rect.second { opacity: 0.5; } .pipeline text.second { fill: var(--ink); }
)";

const char* class_of(Kind kind) {
  if (kind == Kind::forward) return "forward";
  return kind == Kind::backward_weight ? "weight" : "backward";
}

// Pixels per unit of time: a box of one unit has room for its number, up to a width that a page can
// show.
double pixels_per_unit(const TimedSchedule& timed) {
  const auto digits = fmt::to_string(timed.schedule.micro_batches - 1).size();
  constexpr double widest = 2000;
  const auto length = [&](const Action&) { return 12 + 7.5 * static_cast<double>(digits); };
  return std::min(scale_for(timed, length), widest / timed.timing.step);
}

std::string box(const Action& action, Span span, double top, double scale, bool second) {
  const double x = left + span.start * scale, width = (span.end - span.start) * scale;
  std::string svg = fmt::format(
      "<rect class=\"{}{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"3\" />\n",
      class_of(action.kind), second ? " second" : "", x + 0.75, top, std::max(0.5, width - 1.5),
      row_height);
  const std::string number = fmt::to_string(action.micro_batch);
  if (width >= 4 + 7.5 * static_cast<double>(number.size()))
    svg += fmt::format("<text{} x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                       second ? " class=\"second\"" : "", x + width / 2, top + row_height / 2 + 4.5,
                       number);
  return svg;
}

}  // namespace

std::string svg_of_pipeline(const TimedSchedule& timed, const std::string& title) {
  const Schedule& schedule = timed.schedule;
  const double scale = pixels_per_unit(timed);
  const double width = left + timed.timing.step * scale + margin;
  const double height = 2 * margin + schedule.ranks() * (row_height + row_gap) - row_gap;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"pipeline\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "role=\"img\">\n<title>{2}</title>\n<style>{3}{4}</style>\n"
      "<rect class=\"paper\" width=\"{0:.0f}\" height=\"{1:.0f}\" />\n",
      width, height, escaped(title), palette(), style);
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const double top = margin + rank * (row_height + row_gap);
    svg += fmt::format("<text class=\"rank\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", left / 2,
                       top + row_height / 2 + 4.5, rank);
    svg += fmt::format(
        "<rect class=\"idle\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"3\" "
        "/>\n",
        left, top, timed.timing.step * scale, row_height);
    for (const auto& [action, span, position, pale] : lane_of(timed, rank))
      svg += box(action, span, top, scale, pale);
  }
  return svg + "</svg>\n";
}

}  // namespace ringside::cli
