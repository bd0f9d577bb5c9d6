// A chart as SVG: lines, points or stacked areas over one axis.
//
// A chart is a file of its own or part of a page (report.hpp). It is readable on a light and a dark
// background, in print, and on a phone.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/pictures/table.hpp"

namespace ringside::cli {

struct Axis {
  std::string label;  // with the unit: "bucket size (MB)"
  bool log = false;
  std::string (*tick)(double) =
      nullptr;  // how a tick is written, such as "10 KB"; else as a number
};

struct Series {
  enum Style { line, dashed, dots, area };
  std::string name;
  Style style = line;
  // In order of x. A logarithmic axis leaves out values of 0 and below.
  std::vector<std::pair<double, double>> points;
  int colour = -1;  // of palette.hpp; -1: by the position in the chart
};

// Areas are stacked in their order, the first at the bottom. They must share the same x values.
struct Chart {
  std::string title;  // in a file of its own, and for screen readers
  Axis x, y;          // a linear y axis begins at 0 unless a value is negative
  std::vector<Series> series;
};

// The <svg> element, without its style: the page must contain chart_style().
std::string draw(const Chart& chart);

// The numbers of a chart: a row for each x, or for about 24 of many, and a column for each series.
Table table_of(const Chart& chart);

// Several charts in a file of their own, one below the other, each under its title.
std::string svg_file(const std::string& title, const std::vector<Chart>& charts);

// CSS: the style of a chart, in the colours of the palette.
const char* chart_style();

// About `wanted` round numbers from `low` to `high`.
std::vector<double> round_ticks(double low, double high, int wanted);

}  // namespace ringside::cli
