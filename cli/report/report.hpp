// One HTML file that holds everything it shows: no network, no libraries. To be read in a browser
// on light and dark, on a telephone and on paper, by eye, by keyboard (Tab into a figure, then the
// arrow keys) and by a screen reader: under each figure are its numbers as a table.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ringside::cli {

struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
};

struct Figure {
  std::string title;
  std::string drawing;  // HTML; empty: the table is the figure
  std::string caption;  // a sentence or two: what to see
  Table table;
};

struct Report {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  // "ranks", "2 over shm"
  std::vector<Figure> figures;
};

// The page, as well-formed XML would be: every tag is closed, every attribute quoted.
std::string html(const Report& report);

// Writes it. Throws Error naming the file if that fails.
void write_report(const std::string& path, const Report& report);

}  // namespace ringside::cli
