// A chart: lines, points or stacked areas over one axis. A page carries it as JSON, which its
// script draws (report/report.hpp); Python draws it into a file of its own
// (python_svg.hpp).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "cli/pictures/table.hpp"

namespace ringside::cli {

struct Axis {
  std::string label;  // with the unit: "bucket size (MB)"
  bool log = false;
  bool is_size = false;  // ticks are bytes, "10 KB"; else numbers
};

struct Series {
  enum Style { line, dashed, dots, area };
  std::string name;
  Style style = line;
  // In order of x. A logarithmic axis leaves out values of 0 and below.
  std::vector<std::pair<double, double>> points;
  int colour = -1;  // of palette.hpp; -1: by the name, or by the position in the chart
};

// Areas are stacked in their order, the first at the bottom. They must share the same x values.
struct Chart {
  std::string title;  // in a file of its own, and for screen readers
  Axis x, y;          // a linear y axis begins at 0 unless a value is negative
  std::vector<Series> series;
};

// As the page's script and Python draw it: python/ringside/lab/page/report.js has the form.
Json drawing_of(const Chart& chart);

// Several charts in a file, one below the other, each under its title: python/ringside/lab/svg.py
// has the form.
Json picture_of(const std::string& title, const std::vector<Chart>& charts);

// The numbers of a chart: a row for each x, or for about 24 of many, and a column for each series.
Table table_of(const Chart& chart);

}  // namespace ringside::cli
