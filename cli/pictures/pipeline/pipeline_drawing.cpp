#include "cli/pictures/pipeline/pipeline_drawing.hpp"

#include <algorithm>
#include <map>
#include <ostream>
#include <vector>

#include <fmt/format.h>

#include "cli/pictures/lanes.hpp"
#include "cli/pictures/table.hpp"
#include "cli/pictures/wrap.hpp"

namespace ringside::cli {

using namespace pipeline_parallel;

namespace {

const char* class_of(Kind kind) {
  if (kind == Kind::forward) return "forward";
  return kind == Kind::backward_weight ? "weight" : "backward";
}

// What a rank starts at one moment, and when that ends.
struct Start {
  std::string text;  // "0F0 ▶1"
  double end = 0;
};

std::map<double, Start> starts_of(const TimedSchedule& timed, int rank) {
  std::map<double, Start> starts;
  const std::vector<Action>& actions = timed.schedule.actions[rank];
  for (const auto& [action, span, position, pale] : lane_of(timed, rank)) {
    Start& start = starts[span.start];
    if (!start.text.empty()) start.text += ' ';
    start.text += text_of(action);
    start.end = span.end;
    if (position + 1 < actions.size() && is_send(actions[position + 1].kind))
      start.text += fmt::format(" ▶{}", timed.schedule.rank_of[other_stage(actions[position + 1])]);
  }
  return starts;
}

}  // namespace

std::string svg_of_pipeline(const TimedSchedule& timed, const std::string& title) {
  // A box has room for its number, up to a width that a page can show.
  constexpr double widest = 2000;
  const auto digits = fmt::to_string(timed.schedule.micro_batches - 1).size();
  const auto length = [&](const Action&) { return 12 + 7.5 * static_cast<double>(digits); };
  const double pixels = std::min(scale_for(timed, length) * timed.timing.step, widest);
  std::vector<Lane> lanes;
  for (int rank = 0; rank < timed.schedule.ranks(); ++rank) {
    Lane& lane =
        lanes.emplace_back(fmt::to_string(rank), fmt::format("rank {}", rank), timed.timing.step);
    for (const auto& [action, span, position, pale] : lane_of(timed, rank))
      lane.marks.push_back({fmt::format("{}{}", class_of(action.kind), pale ? " second" : ""),
                            text_of(action), span.start, span.end,
                            fmt::to_string(action.micro_batch)});
  }
  return svg_file(title, lanes, timed.timing.step, pixels);
}

void list_pipeline(std::ostream& out, const TimedSchedule& timed, int width) {
  const int ranks = timed.schedule.ranks();
  std::map<double, std::vector<Cell>> rows;  // by time
  std::size_t widest = 7;
  for (int rank = 0; rank < ranks; ++rank)
    for (const auto& [time, start] : starts_of(timed, rank)) {
      rows[time].resize(static_cast<std::size_t>(ranks), "·");
      widest = std::max(widest, columns_of(start.text));
    }
  for (int rank = 0; rank < ranks; ++rank) {
    const auto starts = starts_of(timed, rank);
    for (auto& [time, cells] : rows) {
      const auto next = starts.upper_bound(time);
      if (next == starts.begin()) continue;
      const auto& [began, start] = *std::prev(next);
      if (began == time)
        cells[rank] = start.text;
      else if (time < start.end)
        cells[rank] = "│";
    }
  }
  const int at_once = std::max(1, (width - 10) / (static_cast<int>(widest) + 2));
  for (int first = 0; first < ranks; first += at_once) {
    const int last = std::min(first + at_once, ranks);
    Table table{{number("time", "", {}, 8)}, {}, 0};
    for (int rank = first; rank < last; ++rank)
      table.head.push_back(words(fmt::format("rank {}", rank), "", widest));
    for (const auto& [time, cells] : rows) {
      std::vector<Cell>& row = table.rows.emplace_back(1, time);
      row.insert(row.end(), cells.begin() + first, cells.begin() + last);
    }
    out << (first > 0 ? "\n" : "") << table.text();
  }
}

}  // namespace ringside::cli
