#include "cli/pictures/table.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/pictures/wrap.hpp"

namespace ringside::cli {
namespace {

using Row = std::vector<std::string>;  // [column]
using Lines = std::vector<Row>;

std::string shown(const Cell& cell, const Column& column) {
  if (const auto* text = std::get_if<std::string>(&cell.value)) return *text;
  if (const auto* truth = std::get_if<bool>(&cell.value)) return *truth ? "yes" : "no";
  if (const auto* whole = std::get_if<std::int64_t>(&cell.value))
    return column.show ? column.show(static_cast<double>(*whole)) : fmt::to_string(*whole);
  if (const auto* number = std::get_if<double>(&cell.value))
    return column.show ? column.show(*number) : fmt::format("{:g}", *number);
  return "";
}

// The columns that stand by themselves.
std::vector<Column> shown_columns(const Table& table) {
  std::vector<Column> columns;
  for (const Column& column : table.head)
    if (column.place == Column::by_itself) columns.push_back(column);
  return columns;
}

// The texts of a row, one for each of shown_columns().
Row shown_cells(const Table& table, const std::vector<Cell>& row) {
  Row cells;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const Column& column = table.head.at(i);
    const std::string text = shown(row[i], column);
    if (column.place == Column::by_itself) cells.push_back(text);
    if (column.place == Column::in_brackets && !text.empty())
      cells.back() += fmt::format(" ({})", text);
  }
  return cells;
}

// The titles, which may have several lines.
Lines title_lines(const std::vector<Column>& columns) {
  Lines lines;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const std::vector<std::string> title = lines_of(columns[c].title);
    if (title.size() > lines.size()) lines.resize(title.size(), Row(columns.size()));
    for (std::size_t i = 0; i < title.size(); ++i) lines[i][c] = title[i];
  }
  return lines;
}

std::string aligned(const Table& table, const std::vector<Column>& columns, const Lines& lines) {
  std::string text;
  for (const auto& cells : lines) {
    std::string line(table.indent, ' ');
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (c > 0) line.append(table.gap, ' ');
      line += columns[c].to_the_left ? fmt::format("{:<{}}", cells[c], columns[c].width)
                                     : fmt::format("{:>{}}", cells[c], columns[c].width);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace

Show fixed(int digits, double scale, std::string unit) {
  return [=](double number) { return fmt::format("{:.{}f}{}", number * scale, digits, unit); };
}

Column words(std::string title, std::string key, std::size_t width) {
  Column column(std::move(title), std::move(key), {}, width);
  column.to_the_left = true;
  return column;
}

Column number(std::string title, std::string key, Show show, std::size_t width) {
  return Column(std::move(title), std::move(key), std::move(show), width);
}

Column in_brackets(std::string key, Show show) {
  Column column("", std::move(key), std::move(show));
  column.place = Column::in_brackets;
  return column;
}

Column only_in_json(std::string key) {
  Column column("", std::move(key));
  column.place = Column::only_in_json;
  return column;
}

std::string Table::text() const {
  std::vector<Column> columns = shown_columns(*this);
  Lines lines = title_lines(columns);
  for (const auto& row : rows) lines.push_back(shown_cells(*this, row));
  for (const auto& cells : lines)
    for (std::size_t c = 0; c < cells.size(); ++c)
      columns[c].width = std::max(columns[c].width, columns_of(cells[c]));
  return aligned(*this, columns, lines);
}

std::string Table::head_line() const {
  const std::vector<Column> columns = shown_columns(*this);
  return aligned(*this, columns, title_lines(columns));
}

std::string Table::line_of(const std::vector<Cell>& row) const {
  return aligned(*this, shown_columns(*this), {shown_cells(*this, row)});
}

Json Table::shown() const {
  Json columns = Json::array(), lines = Json::array();
  for (const Column& column : shown_columns(*this)) {
    std::string title = column.title;
    std::ranges::replace(title, '\n', ' ');
    columns.push_back({{"title", title}, {"words", column.to_the_left}});
  }
  for (const auto& row : rows) lines.push_back(shown_cells(*this, row));
  return {{"columns", columns}, {"rows", lines}};
}

Json to_json(const Facts& facts) {
  auto object = Json::object();
  for (const auto& [key, cell] : facts) {
    const auto set = [&, &key = key](const auto& value) {
      if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, std::monostate>)
        object[key] = value;
    };
    std::visit(set, cell.value);
  }
  return object;
}

Json Table::json(const Facts& facts) const {
  auto objects = Json::array();
  for (const auto& row : rows) {
    Facts all = facts;
    for (std::size_t i = 0; i < row.size(); ++i)
      if (const std::string& key = head.at(i).key; !key.empty()) all.emplace_back(key, row[i]);
    objects.push_back(to_json(all));
  }
  return objects;
}

}  // namespace ringside::cli
