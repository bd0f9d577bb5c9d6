#include "parallel/pipeline/csv.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/read_file.hpp"
#include "base/text/printable.hpp"

namespace ringside::pipeline_parallel {

namespace {

constexpr std::array all_kinds = {
    Kind::forward,         Kind::backward,         Kind::backward_input,
    Kind::backward_weight, Kind::send_activation,  Kind::receive_activation,
    Kind::send_gradient,   Kind::receive_gradient, Kind::reduce_gradients};

// Where a cell stands, both counted from 1.
struct CellIndex {
  int line;
  int column;
};

// Takes a number from the front of `text`; none if there is no number, or one too large.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(end - text.data());
  return number;
}

constexpr int most_of_a_kind = 65536;  // stages, or micro-batches

// What torch's lowering adds beside messages and reductions (csv.hpp).
struct LeftOut {
  std::string_view letters;
  bool has_micro_batch;
};
constexpr LeftOut left_out[] = {{"UNSHARD", false},
                                {"RESHARD", false},
                                {"WAIT_SEND_F", true},
                                {"WAIT_SEND_B", true},
                                {"WAIT_REDUCE_GRAD", false}};

// A cell that is one action of torch. `kind` is none if it is left out.
struct Cell {
  int stage, micro_batch;
  std::optional<Kind> kind;
};

// None if the text is no action.
std::optional<Cell> cell_of(std::string_view text) {
  const std::optional<int> stage = take_number(text);
  if (!stage) return std::nullopt;
  const std::string_view letters = text.substr(0, text.find_first_of("0123456789"));
  text.remove_prefix(letters.size());
  const auto cell = [&](std::optional<Kind> kind, bool has_micro_batch) -> std::optional<Cell> {
    const std::optional<int> micro_batch =
        has_micro_batch ? take_number(text) : std::optional(no_micro_batch);
    if (!micro_batch || !text.empty()) return std::nullopt;
    return Cell{*stage, *micro_batch, kind};
  };
  for (const Kind kind : all_kinds)
    if (letters == letters_of(kind)) return cell(kind, kind != Kind::reduce_gradients);
  for (const LeftOut& each : left_out)
    if (letters == each.letters) return cell(std::nullopt, each.has_micro_batch);
  return std::nullopt;
}

// The actions in a cell: one, or those of (2F4;5B0)OVERLAP_F_B. Empty if it has none.
std::vector<Cell> cells_of(std::string_view text) {
  constexpr std::string_view together = ")OVERLAP_F_B";
  if (!text.starts_with('(') || !text.ends_with(together)) {
    const std::optional<Cell> cell = cell_of(text);
    return cell ? std::vector{*cell} : std::vector<Cell>{};
  }
  text.remove_prefix(1);
  text.remove_suffix(together.size());
  const std::size_t middle = std::min(text.find(';'), text.size());
  const std::optional<Cell> first = cell_of(text.substr(0, middle)),
                            second = cell_of(text.substr(std::min(middle + 1, text.size())));
  const bool overlaps =
      first && second && first->kind == Kind::forward && second->kind == Kind::backward;
  return overlaps ? std::vector{*first, *second} : std::vector<Cell>{};
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r";
  const std::size_t begin = text.find_first_not_of(blank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blank) - begin + 1);
}

struct Parser {
  std::string name;
  Schedule schedule{};
  std::vector<CellIndex> first_of{};  // where each stage first stands; line 0: nowhere yet
  std::size_t cells = 0;              // actions so far

  [[noreturn]] void fail_at(CellIndex at, const std::string& what) const {
    fail("{}:{}:{}: {}", name, at.line, at.column, what);
  }

  void take(std::string_view text, CellIndex at) {
    const std::vector<Cell> found = cells_of(text);
    if (found.empty()) {
      fail_at(at, fmt::format("expected an action, such as 2F0 for forward of stage 2 and "
                              "micro-batch 0, or 2B0, 2I0, 2W0, 2SEND_F0, 2RECV_F0, 2SEND_B0, "
                              "2RECV_B0 or 2REDUCE_GRAD; got \"{}\"",
                              printable_line(text)));
    }
    for (const Cell& cell : found) take(cell, at);
  }

  void take(const Cell& cell, CellIndex at) {
    place(cell.stage, at);
    if (cell.micro_batch >= most_of_a_kind)
      fail_at(at, fmt::format("expected a micro-batch from 0 to {}, got {}", most_of_a_kind - 1,
                              cell.micro_batch));
    schedule.micro_batches = std::max(schedule.micro_batches, cell.micro_batch + 1);
    if (!cell.kind) return;
    ++cells;
    schedule.actions.back().push_back({*cell.kind, cell.stage, cell.micro_batch});
  }

  void place(int stage, CellIndex at) {
    if (stage >= most_of_a_kind)
      fail_at(at, fmt::format("expected a stage from 0 to {}, got {}", most_of_a_kind - 1, stage));
    const int rank = schedule.ranks() - 1;
    if (stage >= schedule.stages()) {
      schedule.rank_of.resize(stage + 1, -1);
      first_of.resize(stage + 1, CellIndex{});
    }
    int& rank_of_stage = schedule.rank_of[stage];
    if (rank_of_stage < 0) {
      rank_of_stage = rank;
      first_of[stage] = at;
    }
    if (rank_of_stage != rank) {
      fail_at(at, fmt::format("expected a stage of rank {}, got stage {}, which is on rank {} "
                              "already (line {}, column {}): a stage has one rank",
                              rank, stage, rank_of_stage, first_of[stage].line,
                              first_of[stage].column));
    }
  }

  void take_row(std::string_view row, int line) {
    schedule.actions.emplace_back();
    std::size_t begin = 0;
    while (begin <= row.size()) {
      const std::size_t end = std::min(row.find(',', begin), row.size());
      std::string_view cell = row.substr(begin, end - begin);
      const std::string_view action = trimmed(cell);
      if (!action.empty()) {
        const std::size_t column = begin + (action.data() - cell.data()) + 1;
        take(action, {line, static_cast<int>(column)});
      }
      begin = end + 1;
    }
    if (schedule.actions.back().empty()) {
      fail_at({line, 1}, fmt::format("expected the actions of rank {}, got a row without any",
                                     schedule.ranks() - 1));
    }
  }

  Schedule finished() const {
    require(!schedule.actions.empty(), "{}: expected one row per rank, got an empty file", name);
    require(schedule.micro_batches > 0,
            "{}: expected the actions of at least one micro-batch, got none", name);
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      require(schedule.rank_of[stage] >= 0,
              "{}: expected stages 0 to {}, got no action of stage {} in any row", name,
              schedule.stages() - 1, stage);
    }
    const std::size_t pairs = static_cast<std::size_t>(schedule.stages()) * schedule.micro_batches;
    require(pairs <= cells,
            "{}: expected at least {} actions, a forward for each of {} stages and {} "
            "micro-batches; got {}",
            name, pairs, schedule.stages(), schedule.micro_batches, cells);
    return schedule;
  }
};

}  // namespace

std::string csv_of(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Action>& actions : schedule.actions) {
    std::vector<std::string> cells;
    for (const Action& action : actions) cells.push_back(text_of(action));
    text += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return text;
}

Schedule parse_csv(const std::string& text, const std::string& name) {
  Parser parser{.name = name};
  int line = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    parser.take_row(std::string_view(text).substr(begin, end - begin), ++line);
    begin = end + 1;
  }
  return parser.finished();
}

Schedule read_csv(const std::string& path) {
  require(
      !std::filesystem::is_directory(path),
      "expected a file with a schedule, a row for each rank; {} is a folder: name the file in it",
      path);
  return parse_csv(read_file(path, "the schedule in"), path);
}

}  // namespace ringside::pipeline_parallel
