// A table of figures, written once and read by all: people at a terminal, other programs (JSON), a
// page (report/report.hpp).
//
//     Table table{{words("strategy", "strategy"), number("step\n(ms)", "step_ms", fixed(1)),
//                  number("sent\n(MB)", "bytes_sent", fixed(2, 1e-6)),
//                  in_brackets("formula_bytes_sent", fixed(2, 1e-6))}};
//     table.rows.push_back({"overlap", 12.34, 3428864, 3428000});
//
//     table.text()     strategy  step         sent
//                              (ms)         (MB)
//                    overlap   12.3  3.43 (3.43)
//     table.json()     [{"strategy": "overlap", "step_ms": 12.34, "bytes_sent": 3428864,
//                        "formula_bytes_sent": 3428000}]
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.hpp"

namespace ringside::cli {

// A value: text or a number. Cell() is absent: nothing is shown, and JSON lacks the key.
// Cell(nullptr) shows nothing either, and is null in JSON.
struct Cell {
  std::variant<std::monostate, std::nullptr_t, bool, std::int64_t, double, std::string> value;

  Cell() = default;
  Cell(std::nullptr_t null) : value(null) {}
  Cell(bool truth) : value(truth) {}
  Cell(std::integral auto number) : value(static_cast<std::int64_t>(number)) {}
  Cell(std::floating_point auto number) : value(static_cast<double>(number)) {}
  Cell(std::string text) : value(std::move(text)) {}
  Cell(std::string_view text) : value(std::string(text)) {}
  Cell(const char* text) : value(std::string(text)) {}
  Cell(std::optional<double> number) {
    if (number) value = *number;
    if (!number) value = nullptr;
  }
  bool operator==(const Cell&) const = default;
};

// How a number is shown. The default shows all of its digits.
using Show = std::function<std::string(double)>;

// With so many digits after the point, after multiplication by `scale`: fixed(2, 1e-6) shows bytes
// in MB.
Show fixed(int digits, double scale = 1, std::string unit = "");

struct Column {
  std::string title;     // with its unit: "step (ms)"; a line break is one in the terminal only
  std::string key = {};  // with its unit, "step_ms"; empty: not in JSON
  Show show = {};
  std::size_t width = 0;  // at least so wide
  bool to_the_left = false;
  // Where people see the column: by itself, in brackets after the column before, or nowhere.
  enum Place { by_itself, in_brackets, only_in_json } place = by_itself;

  Column(const char* name) : title(name) {}
  Column(std::string name, std::string json_key = {}, Show shown = {}, std::size_t at_least = 0)
      : title(std::move(name)), key(std::move(json_key)), show(std::move(shown)), width(at_least) {}
};

Column words(std::string title, std::string key = {}, std::size_t width = 0);
Column number(std::string title, std::string key, Show show = {}, std::size_t width = 0);
Column in_brackets(std::string key, Show show);  // the formula beside what was measured
Column only_in_json(std::string key);

// What all rows have in common: the model, the number of ranks.
using Facts = std::vector<std::pair<std::string, Cell>>;
Json to_json(const Facts& facts);

struct Table {
  std::vector<Column> head;
  std::vector<std::vector<Cell>> rows = {};  // a cell for each column
  std::size_t indent = 2, gap = 2;           // spaces in the terminal

  // For a terminal. Each column is as wide as its widest cell.
  std::string text() const;

  // The same line by line, for rows that are printed while others are still measured. Each column
  // is as wide as it says.
  std::string head_line() const;
  std::string line_of(const std::vector<Cell>& row) const;

  // For a page: titles in one line, and cells as people read them.
  Json shown() const;

  // An array with an object for each row: first the facts, then the cells of columns with a key.
  Json json(const Facts& facts = {}) const;
};

}  // namespace ringside::cli
