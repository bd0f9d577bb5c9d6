#include "cli/pictures/pipeline/pipeline_picture.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <ostream>
#include <vector>

#include <fmt/format.h>

namespace ringside::cli {

using namespace pipeline_parallel;

namespace {

constexpr int label_width = 9;  // "rank 12" and two spaces

// A computation as a box of the picture, in columns from the start of the step.
struct Box {
  int begin, end;
  std::string text;    // "F0", or "4F0" where the rank has several stages
  const char* colour;  // an escape sequence
};

const char* colour_of(Kind kind, bool light) {
  if (kind == Kind::forward) return light ? "\033[30;48;5;117m" : "\033[97;48;5;25m";
  if (kind == Kind::backward_weight) return light ? "\033[30;48;5;114m" : "\033[97;48;5;28m";
  return light ? "\033[30;48;5;215m" : "\033[97;48;5;130m";
}

// "F0"; "f0" for the second of two stages; "4F0" where a rank has more than two.
std::string label_of(const Schedule& schedule, const Action& action) {
  const std::vector<int> stages = stages_of(schedule, schedule.rank_of[action.stage]);
  const std::string text = text_of(action);
  if (stages.size() > 2) return text;
  std::string label = text.substr(text.find_first_not_of("0123456789"));
  if (action.stage != stages[0]) label[0] = static_cast<char>(std::tolower(label[0]));
  return label;
}

// Columns per unit of time, so that each box has room for its text, and for a gap behind it unless
// the step fits into `room` without gaps only.
double columns_per_unit(const TimedSchedule& timed, int room) {
  const auto scale = [&](int gap) {
    return std::ceil(scale_for(timed, [&](const Action& a) {
      return static_cast<double>(label_of(timed.schedule, a).size()) + gap;
    }));
  };
  const double needed = scale(0), with_gaps = scale(1);
  // "F0F1" can be read without gaps, "4F04F1" cannot.
  const bool readable = timed.schedule.stages() <= 2 * timed.schedule.ranks();
  const bool only_without =
      with_gaps * timed.timing.step > room && needed * timed.timing.step <= room && readable;
  return only_without ? needed : with_gaps;
}

std::vector<Box> boxes_of(const TimedSchedule& timed, int rank, double scale) {
  std::vector<Box> boxes;
  for (const auto& [action, span, position, pale] : lane_of(timed, rank))
    boxes.push_back({.begin = static_cast<int>(std::lround(span.start * scale)),
                     .end = static_cast<int>(std::lround(span.end * scale)),
                     .text = label_of(timed.schedule, action),
                     .colour = colour_of(action.kind, pale)});
  return boxes;
}

// What stands in column `at` of a box: its text, then a line, and a gap at the end if there is
// room.
std::string column_of(const Box& box, int at) {
  const int length = static_cast<int>(box.text.size()), width = box.end - box.begin;
  if (at - box.begin < length) return std::string(1, box.text[at - box.begin]);
  const bool last = at + 1 == box.end;
  return last && width > length ? " " : "─";
}

// Columns first .. last-1 of a row.
std::string row_of(const std::vector<Box>& boxes, int first, int last, bool colour) {
  std::string row;
  int at = first;
  for (const Box& box : boxes) {
    const int begin = std::max(box.begin, first), end = std::min(box.end, last);
    if (begin >= end) continue;
    row += std::string(begin - at, ' ');
    if (colour) row += box.colour;
    for (int column = begin; column < end; ++column) {
      const std::string text = column_of(box, column);
      if (colour && text == " ") row += "\033[0m";
      row += colour && text == "─" ? " " : text;
    }
    if (colour) row += "\033[0m";
    at = end;
  }
  return row;
}

// Units of time between two numbers of the ruler, which are then 8 columns or more apart.
double tick_for(double scale) {
  double tick = 1;
  for (const double factor : {2.0, 2.5, 2.0, 2.0, 2.5, 2.0, 2.0, 2.5, 2.0})
    if (tick * scale < 8) tick *= factor;
  return tick;
}

// "0    5    10": the times between two columns.
std::string ruler(double scale, int first, int last) {
  std::string row;
  for (double time = 0; time * scale < last; time += tick_for(scale)) {
    const int column = static_cast<int>(std::lround(time * scale));
    if (column >= first) row = fmt::format("{:<{}}{:g}", row, column - first, time);
  }
  return row;
}

// A line of the picture, without spaces at its end.
std::string line_of(const std::string& label, const std::string& row) {
  const std::string line = fmt::format("{:<{}}{}", label, label_width, row);
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

// The columns of a panel: all, or as many as fit so that the next panel begins with a number of
// the ruler.
int columns_of_panel(double scale, int room, int whole) {
  const int tick = static_cast<int>(tick_for(scale) * scale);
  return whole <= room || tick > room ? room : room / tick * tick;
}

}  // namespace

std::vector<Computation> lane_of(const TimedSchedule& timed, int rank) {
  std::vector<Computation> lane;
  const std::vector<int> stages = stages_of(timed.schedule, rank);
  const std::vector<Action>& actions = timed.schedule.actions[rank];
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (!is_computation(actions[i].kind)) continue;
    const auto nth = std::ranges::find(stages, actions[i].stage) - stages.begin();
    lane.push_back({actions[i], timed.timing.spans[rank][i], i, nth % 2 == 1});
  }
  return lane;
}

double scale_for(const TimedSchedule& timed, const std::function<double(const Action&)>& length) {
  double scale = 0;
  for (int rank = 0; rank < timed.schedule.ranks(); ++rank)
    for (const auto& [action, span, position, pale] : lane_of(timed, rank))
      if (span.end > span.start) scale = std::max(scale, length(action) / (span.end - span.start));
  return scale;
}

void draw_pipeline(std::ostream& out, const TimedSchedule& timed, int width, bool colour) {
  const int room = width - label_width;
  const double scale = columns_per_unit(timed, room);
  const int whole = static_cast<int>(std::lround(timed.timing.step * scale));
  const int panel = columns_of_panel(scale, room, whole);
  std::vector<std::vector<Box>> boxes;
  for (int rank = 0; rank < timed.schedule.ranks(); ++rank)
    boxes.push_back(boxes_of(timed, rank, scale));
  for (int first = 0; first < whole; first += panel) {
    const int last = std::min(first + panel, whole);
    if (first > 0) out << "\n";
    out << line_of("time", ruler(scale, first, last));
    for (int rank = 0; rank < timed.schedule.ranks(); ++rank)
      out << line_of(fmt::format("rank {}", rank), row_of(boxes[rank], first, last, colour));
  }
}

}  // namespace ringside::cli
