#include "cli/pictures/schedule/step_table.hpp"

#include <algorithm>
#include <numeric>
#include <ostream>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text/words.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/wrap.hpp"
#include "collectives/proof/verify.hpp"

namespace ringside::cli {

using namespace collectives;

std::string range_text(ChunkRange range) {
  if (range.count == 0) return "";
  if (range.pieces() > 3 && range.run > 1)
    return fmt::format("{}..{}", range.at(0), range.at(range.count - 1));
  if (range.pieces() > 3)
    return fmt::format("{},{}..{}", range.at(0), range.at(1), range.at(range.count - 1));
  std::vector<std::string> pieces;
  for (int i = 0; i < range.pieces(); ++i) {
    const ChunkRange piece = range.piece(i);
    pieces.push_back(piece.count == 1
                         ? fmt::to_string(piece.first)
                         : fmt::format("{}-{}", piece.first, piece.first + piece.count - 1));
  }
  return fmt::format("{}", fmt::join(pieces, ","));
}

namespace {

constexpr int label_width = 10;    // "  rank 12" and a space
constexpr int message_width = 23;  // "   ─13,15..11─▶ rank 12"

constexpr const char* green = "\033[1;32m";
constexpr const char* yellow = "\033[1;33m";
constexpr const char* bold = "\033[1m";
constexpr const char* faint = "\033[2m";

int decimal_digits(int n) {
  return static_cast<int>(std::to_string(n).size());
}

std::string full_heading(Collective collective, int chunk) {
  return collective == Collective::barrier ? "has heard from" : fmt::format("chunk {}", chunk);
}

// Includes a space before and after it.
int width_of_full_heading(Collective collective, int chunk) {
  return static_cast<int>(full_heading(collective, chunk).size()) + 2;
}

// Whether contributions are only copied, never added.
bool moves_only(Collective collective) {
  return !reduces(collective) && collective != Collective::barrier;
}

// The widest cell of a correct collective on `size` ranks.
int widest_cell(Collective collective, int size, CellNotation notation) {
  std::vector<double> everyone(size, 1), every_other(size, 0);
  for (int rank = 0; rank < size; rank += 2) every_other[rank] = 1;
  if (names_chunks(collective)) return 2 * decimal_digits(size - 1) + 1;
  if (moves_only(collective))
    return notation == CellNotation::counts ? 1 : decimal_digits(size - 1);
  return static_cast<int>(
      std::max(cell_text(everyone, notation).size(), cell_text(every_other, notation).size()));
}

// "─3─▶", for several chunks "─4-7─▶", without payload "───▶": the chunks as the sender names them.
std::string arrow(const Send& send) {
  return fmt::format("─{}─▶", send.chunks.count == 0 ? "─" : range_text(send.taken()));
}

}  // namespace

std::string what_arrives(const std::vector<Schedule>& schedules, int step) {
  std::vector<int> adding, overwriting;
  bool payload = false;
  for (int rank = 0; rank < static_cast<int>(schedules.size()); ++rank) {
    const std::optional<Receive>& receive = schedules[rank].steps[step].receive;
    if (!receive) continue;
    (receive->action == Action::add ? adding : overwriting).push_back(rank);
    payload = payload || receive->chunks.count > 0;
  }
  if (adding.empty() && overwriting.empty()) return "nothing is sent";
  if (!payload) return "the messages carry no payload";
  if (overwriting.empty()) return "what arrives is added";
  if (adding.empty()) return "what arrives replaces what was there";
  return fmt::format("what arrives is added on {}, and replaces what was there on {}",
                     ranks_in_words(adding), ranks_in_words(overwriting));
}

int cells_of_rank(Collective collective, int chunks) {
  return collective == Collective::barrier ? 1 : chunks;
}

std::string meaning_of_cell(Collective collective, CellNotation notation) {
  if (collective == Collective::barrier)
    return "A row names the ranks that this rank has heard from, directly or through others";
  if (names_chunks(collective))
    return "A cell names what this chunk on this rank holds: 2.1 is chunk 1 of rank 2's input";
  return fmt::format("A cell {} the ranks whose contributions this chunk on this rank holds",
                     notation == CellNotation::counts ? "counts" : "names");
}

std::string cell_text(const std::vector<double>& held, CellNotation notation) {
  if (notation == CellNotation::counts)
    return fmt::to_string(std::accumulate(held.begin(), held.end(), 0.0));
  const int size = static_cast<int>(held.size());
  std::vector<std::string> parts;
  for (int rank = 0; rank < size; ++rank) {
    int last = rank;  // the end of a span of ranks that occur once each
    while (notation == CellNotation::spans && held[rank] == 1 && last + 1 < size &&
           held[last + 1] == 1)
      ++last;
    if (last == rank + 1) last = rank;  // "0+1" is clearer than "0-1" and as short
    if (last > rank) {
      parts.push_back(fmt::format("{}-{}", rank, last));
    } else if (held[rank] > 3) {
      parts.push_back(fmt::format("{}(x{})", rank, held[rank]));
    } else {
      for (int i = 0; i < held[rank]; ++i) parts.push_back(fmt::to_string(rank));
    }
    rank = last;
  }
  return fmt::format("{}", fmt::join(parts, "+"));
}

std::vector<std::vector<std::string>> cell_names(Collective collective,
                                                 const std::vector<RankState>& states,
                                                 CellNotation notation) {
  const auto size = static_cast<std::ptrdiff_t>(states.size());
  std::vector<std::vector<std::string>> rows(states.size());
  for (size_t rank = 0; rank < states.size(); ++rank) {
    if (collective == Collective::barrier) {
      const std::vector<bool>& heard = states[rank].heard_from;
      rows[rank].push_back(cell_text({heard.begin(), heard.end()}, notation));
      continue;
    }
    for (const std::vector<double>& held : states[rank].chunks) {
      const auto chunks = held.begin() + size;  // where the names of chunks begin, if there are any
      const bool named = names_chunks(collective);
      rows[rank].push_back(named ? cell_text({held.begin(), chunks}, CellNotation::names) + "." +
                                       cell_text({chunks, held.end()}, CellNotation::names)
                                 : cell_text(held, notation));
    }
  }
  return rows;
}

struct StepTable::Row {
  std::vector<std::string> cells;  // "[0+2]" has just arrived, " 0" has not
  const char* colour = "";         // of what has arrived
  std::string arrow;               // "─3─▶"; empty if the rank sends nothing
  int to = 0;
};

StepTable::StepTable(std::ostream& out, const Algorithm& algorithm, int size, int width,
                     bool colour)
    : out_(out),
      algorithm_(algorithm),
      size_(size),
      width_(width),
      colour_(colour),
      notation_(CellNotation::names) {
  const int count = cells_of_rank(algorithm.collective, algorithm.make(size, 0, 0).chunks);
  for (const CellNotation notation :
       {CellNotation::names, CellNotation::spans, CellNotation::counts}) {
    notation_ = notation;
    cell_width_ = widest_cell(algorithm.collective, size, notation) + 3;
    // Prefer spans to names if the messages then fit beside the cells. A cell with a single name
    // cannot become shorter.
    const bool beside = notation == CellNotation::names && !moves_only(algorithm.collective);
    if (label_width + count * cell_width_ + (beside ? message_width : 0) <= width) break;
  }
  const int in_full = width_of_full_heading(algorithm.collective, count - 1);
  if (label_width + count * in_full + message_width <= width)
    cell_width_ = std::max(cell_width_, in_full);
}

std::string StepTable::painted(const std::string& text, const char* code) const {
  return colour_ ? fmt::format("{}{}\033[0m", code, text) : text;
}

void StepTable::draw_title(int root, int steps, int chunks) const {
  const bool barrier = algorithm_.collective == Collective::barrier;
  const std::string where = has_root(algorithm_.collective) ? fmt::format(", root {}", root) : "";
  const std::string pieces = barrier       ? "no payload"
                             : chunks == 1 ? "the whole buffer as one chunk"
                                           : fmt::format("the buffer in {} chunks", chunks);
  const std::string title =
      fmt::format("{} on {}{}: {}, {}", algorithm_.title(), counted(size_, "rank"), where,
                  counted(steps, "step"), pieces);
  out_ << painted(title, bold) << "\n\n";

  out_ << meaning_of_cell(algorithm_.collective, notation_);
  if (notation_ == CellNotation::spans && !moves_only(algorithm_.collective))
    out_ << " (0-3 is 0+1+2+3)";
  out_ << ".\n[ ] has just arrived. ";
  out_ << (barrier ? "───▶ rank 1: sends a message without payload to rank 1.\n"
                   : "─3─▶ rank 1: sends its chunk 3 to rank 1.\n");
}

void StepTable::draw_start(const std::vector<RankState>& states) const {
  std::vector<Row> rows;
  for (const auto& names : cell_names(algorithm_.collective, states, notation_)) {
    Row& row = rows.emplace_back();
    for (const std::string& name : names) row.cells.push_back(" " + name);
  }
  out_ << "\n" << painted("at the start", bold) << "\n";
  draw_rows(rows);
  out_.flush();
}

void StepTable::draw_step(const std::vector<Schedule>& schedules, int step,
                          const std::vector<RankState>& states) const {
  const bool barrier = algorithm_.collective == Collective::barrier;
  const auto names = cell_names(algorithm_.collective, states, notation_);
  std::vector<Row> rows(states.size());
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    const auto& [send, receive] = schedules[rank].steps[step];
    if (send) rows[rank].arrow = arrow(*send), rows[rank].to = send->to;
    if (receive) rows[rank].colour = receive->action == Action::add ? green : yellow;
    for (int i = 0; i < static_cast<int>(names[rank].size()); ++i) {
      const bool arrived = receive && (barrier || contains(receive->chunks, i));
      rows[rank].cells.push_back(arrived ? "[" + names[rank][i] + "]" : " " + names[rank][i]);
    }
  }
  out_ << "\n" << painted(fmt::format("step {}", step), bold) << ": ";
  std::string arrives = what_arrives(schedules, step);
  const size_t second_half = arrives.find(", and replaces");
  if (second_half != std::string::npos && label_width + static_cast<int>(arrives.size()) > width_)
    arrives.replace(second_half, 2, ",\n    ");
  out_ << arrives << "\n";
  draw_rows(rows);
  out_.flush();
}

void StepTable::draw_rows(const std::vector<Row>& rows) const {
  const int count = static_cast<int>(rows[0].cells.size());
  const int fitting = std::max(1, (width_ - label_width) / cell_width_);
  const int panels = (count + fitting - 1) / fitting;
  const bool beside = panels == 1 && label_width + count * cell_width_ + message_width <= width_;
  for (int panel = 0; panel < panels; ++panel) {
    draw_panel(rows, count * panel / panels, count * (panel + 1) / panels, beside);
  }
  if (!beside) draw_messages_below(rows);
}

// The cells of chunks first .. last-1 of all ranks.
void StepTable::draw_panel(const std::vector<Row>& rows, int first, int last,
                           bool with_messages) const {
  const bool headings_in_full =
      cell_width_ >= width_of_full_heading(algorithm_.collective, last - 1);
  std::string line = fmt::format("{:{}}", headings_in_full ? "" : "    chunk", label_width);
  for (int i = first; i < last; ++i)
    line += fmt::format(
        " {:{}}", headings_in_full ? full_heading(algorithm_.collective, i) : fmt::to_string(i),
        cell_width_ - 1);
  out_ << painted(line.substr(0, line.find_last_not_of(' ') + 1), faint) << "\n";

  for (size_t rank = 0; rank < rows.size(); ++rank) {
    const Row& row = rows[rank];
    out_ << fmt::format("  rank {:<{}}", rank, label_width - 7);
    size_t spaces = 0;  // before the next cell; none at the end of a line
    for (int i = first; i < last; ++i) {
      const std::string& cell = row.cells[i];
      out_ << std::string(spaces, ' ') << (cell[0] == '[' ? painted(cell, row.colour) : cell);
      spaces = std::max<size_t>(cell.size() + 1, cell_width_) - cell.size();
    }
    if (with_messages && !row.arrow.empty())
      out_ << fmt::format("{:{}}{} rank {}", "", spaces + 3, row.arrow, row.to);
    out_ << "\n";
  }
}

// "0 ─3─▶ 1   1 ─0─▶ 2   ...", as many per line as fit.
void StepTable::draw_messages_below(const std::vector<Row>& rows) const {
  const std::string start = "  sent:";
  std::string line = start;
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    if (rows[rank].arrow.empty()) continue;
    const std::string message = fmt::format("   {} {} {}", rank, rows[rank].arrow, rows[rank].to);
    if (columns_of(line + message) > static_cast<std::size_t>(width_)) {
      out_ << line << "\n";
      line = std::string(start.size(), ' ');
    }
    line += message;
  }
  if (line.size() > start.size()) out_ << line << "\n";
}

}  // namespace ringside::cli
