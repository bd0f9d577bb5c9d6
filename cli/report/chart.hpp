// A chart, as SVG: lines, points or stacked areas over one axis. It stands in a file of its own or
// in a page (report.hpp), is readable on light and dark and when printed, and its text is large
// enough for a telephone.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ringside::cli {

struct Axis {
  std::string label;  // with the unit: "bucket size (MB)"
  bool log = false;
};

struct Series {
  enum Style { line, dashed, dots, area };
  std::string name;
  Style style = line;
  std::vector<std::pair<double, double>>
      points;       // by growing x; on a logarithmic axis what is not above 0 is left out
  int colour = -1;  // 0 to 6; -1: its place in the chart
};

// Areas stand on each other in their order, the first at the bottom, and must have the same x.
struct Chart {
  std::string title;  // for a file of its own, and for screen readers
  Axis x, y;          // a linear y begins at 0, if nothing is below
  std::vector<Series> series;
};

// An <svg> element without the style that it needs: chart_style().
std::string draw(const Chart& chart);

// The same as a file.
std::string svg_file(const Chart& chart);

// CSS: the colours on light, dark and paper, and what charts do with them.
const char* chart_style();

// As text in HTML and SVG.
std::string escaped(const std::string& text);

// Round numbers, about `wanted` of them, from `low` to `high`.
std::vector<double> round_ticks(double low, double high, int wanted);

}  // namespace ringside::cli
