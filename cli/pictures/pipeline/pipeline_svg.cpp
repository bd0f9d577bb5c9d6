#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "cli/pictures/lanes.hpp"
#include "cli/pictures/pipeline/pipeline_picture.hpp"

namespace ringside::cli {

using namespace pipeline_parallel;

namespace {

const char* class_of(Kind kind) {
  if (kind == Kind::forward) return "forward";
  return kind == Kind::backward_weight ? "weight" : "backward";
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

}  // namespace ringside::cli
