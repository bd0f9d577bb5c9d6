// Lanes of a page: rows of marks over one axis, such as the phases of a rank over time. Positions
// are percentages of the width, so that lanes fit any window while their text keeps its size.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ringside::cli {

// A stretch of the axis. Its class gives it its colour (palette.hpp).
struct Mark {
  std::string style;  // "forward", "wait", "c3"
  std::string says;   // for the line below the figure, and for screen readers
  double begin = 0, end = 0;
  std::string text = "";  // in the mark
};

struct Lane {
  std::string name;         // in the column on the left
  std::string description;  // for screen readers
  double end = 0;           // of the ground under the marks
  std::vector<Mark> marks = {};
  std::string attributes = "";  // for the page's script
};

// The width stands for `scale`.
std::string draw(const Lane& lane, double scale);

// The axis below the last lane, from 0 to `scale`.
std::string lanes_axis(double scale, const std::string& label);

// From (class, what it means).
std::string lanes_legend(const std::vector<std::pair<std::string, std::string>>& entries);

}  // namespace ringside::cli
