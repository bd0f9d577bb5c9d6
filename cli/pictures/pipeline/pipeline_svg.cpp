#include <algorithm>

#include <fmt/format.h>

#include "cli/pictures/pipeline/pipeline_picture.hpp"

namespace ringside::cli {

using namespace pipeline_parallel;

namespace {

const char* class_of(Kind kind) {
  if (kind == Kind::forward) return "forward";
  return kind == Kind::backward_weight ? "weight" : "backward";
}

}  // namespace

Json picture_of(const TimedSchedule& timed, const std::string& title) {
  // A box has room for its number, up to a width that a page can show.
  constexpr double widest = 2000;
  const auto digits = fmt::to_string(timed.schedule.micro_batches - 1).size();
  const auto length = [&](const Action&) { return 12 + 7.5 * static_cast<double>(digits); };
  const double step = timed.timing.step;
  Json lanes = Json::array();
  for (int rank = 0; rank < timed.schedule.ranks(); ++rank) {
    Json marks = Json::array();
    for (const auto& [action, span, position, pale] : lane_of(timed, rank))
      marks.push_back({fmt::format("{}{}", class_of(action.kind), pale ? " second" : ""),
                       text_of(action), span.start, span.end, fmt::to_string(action.micro_batch)});
    lanes.push_back({{"name", fmt::to_string(rank)},
                     {"says", fmt::format("rank {}", rank)},
                     {"end", step},
                     {"marks", marks}});
  }
  return {{"title", title},
          {"scale", step},
          {"pixels", std::min(scale_for(timed, length) * step, widest)},
          {"lanes", lanes}};
}

}  // namespace ringside::cli
