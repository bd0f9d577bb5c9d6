// Lanes: rows of marks over one axis, such as the phases of a rank over time. Positions are
// percentages of the width, so that lanes fit any window while their text keeps its size.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ringside::cli {

// A stretch of the axis. Its class gives it its colour (palette.hpp).
struct Mark {
  std::string style;  // "forward", "wait", "c3"; "forward second": paler
  std::string says;   // for the line below the figure, and for screen readers
  double begin = 0, end = 0;
  std::string text = "";  // in the mark, if there is room
};

struct Lane {
  std::string name;         // in the column on the left
  std::string description;  // for screen readers
  double end = 0;           // of the ground under the marks
  std::vector<Mark> marks = {};
  std::string attributes = "";  // for the page's script
  std::string heading = "";     // above the lane
};

// Lanes for a page, whose width stands for `scale`; below them the axis, from 0 to `scale`, and a
// legend from (class, what it means).
std::string draw(const std::vector<Lane>& lanes, double scale, const std::string& axis,
                 const std::vector<std::pair<std::string, std::string>>& legend);

// Lanes as a file of their own, without an axis; `scale` stands for so many pixels.
std::string svg_file(const std::string& title, const std::vector<Lane>& lanes, double scale,
                     double pixels);

// CSS: the style of a lane, in the colours of the palette.
const char* lane_style();

}  // namespace ringside::cli
