// A report: one self-contained HTML file, without network or libraries.
//
// The page carries its facts, tables and figures as JSON, and its script draws them: report.js in
// python/ringside/lab/page/, where the form of the JSON is. Python's reports are the same page.
//
// It works in a browser on a light and a dark background, on a phone, in print, with a keyboard
// (Tab enters a figure, the arrow keys move within it, + and - zoom into tracks) and with a screen
// reader: below each figure its numbers are given as a table.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "cli/pictures/table.hpp"

namespace ringside::cli {

struct Figure {
  std::string title;
  Json drawing;             // null: the figure is its table
  std::string caption;      // one or two sentences, or lines
  Table table;              // all numbers of the drawing; a reader unfolds it
  std::string choice = {};  // "step 3": the page shows the figures of one choice at a time
};

struct Report {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  // "ranks", "2 over shm"
  std::vector<Figure> figures;
};

// For a terminal: the facts, then each figure's title, table and caption. Lines fit 80 columns.
std::string text_of(const Report& report);

// The page. Where no script runs it shows the text of a terminal. It is well-formed like XML: every
// tag is closed, every attribute quoted.
std::string html(const Report& report);

// Writes the page. Throws Error that names the file if it cannot be written.
void write_report(const std::string& path, const Report& report, std::FILE* out);

}  // namespace ringside::cli
