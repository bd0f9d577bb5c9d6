#include "cli/pictures/player/pipeline_plays.hpp"

#include <set>

#include <fmt/format.h>

#include "cli/pictures/pipeline/pipeline_picture.hpp"
#include "cli/pictures/player/player_data.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "parallel/pipeline/lower.hpp"

namespace ringside::cli {

using namespace pipeline_parallel;

namespace {

// The numbers of micro-batches that the page offers on this many ranks.
std::set<int> played_micro_batches(int ranks) {
  return {1, 2, 4, 8, 16, ranks, 2 * ranks};
}

Json play_of(const Schedule& schedule, const Durations& durations) {
  TimedSchedule timed{lower(schedule), {}};
  timed.timing = time_of(timed.schedule, durations);
  Json boxes = Json::array(), messages = Json::array();
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    Json lane = Json::array();
    for (const Computation& box : lane_of(timed, rank))
      lane.push_back({text_of(box.action), box.span.start, box.span.end, box.pale});
    boxes.push_back(lane);
    for (std::size_t i = 0; i < timed.schedule.actions[rank].size(); ++i) {
      const Action& action = timed.schedule.actions[rank][i];
      if (!is_send(action.kind)) continue;
      const char* what = action.kind == Kind::send_activation ? "F" : "B";
      messages.push_back({{"from", rank},
                          {"to", timed.schedule.rank_of[other_stage(action)]},
                          {"label", fmt::format("{}{}", what, action.micro_batch)},
                          {"arrives", timed.timing.spans[rank][i].end}});
    }
  }
  return {{"boxes", boxes}, {"messages", messages}, {"bubble", timed.timing.bubble()}};
}

Json plays_of(const Generator& generator, const PipelineChoice& choice) {
  Json plays;
  const int stages = choice.name == generator.name ? choice.stages_per_rank : 0;
  for (const int ranks : played_ranks(choice.schedule.ranks()))
    for (const int micro_batches : played_micro_batches(ranks))
      if (why_not(generator, ranks, micro_batches, stages).empty())
        plays[fmt::to_string(ranks)][fmt::to_string(micro_batches)] =
            play_of(make_schedule(generator, ranks, micro_batches, stages), choice.durations);
  return plays;
}

}  // namespace

Json pipeline_family(const PipelineChoice& choice) {
  const auto& [name, schedule, stages_per_rank, durations] = choice;
  Json algorithms = Json::array();
  const auto add = [&](std::string_view named, Json plays) {
    if (named == name)
      plays[fmt::to_string(schedule.ranks())][fmt::to_string(schedule.micro_batches)] =
          play_of(schedule, durations);
    algorithms.push_back({{"name", named}, {"cautionary", false}, {"plays", plays}});
  };
  for (const Generator& generator : all_generators())
    add(generator.name, plays_of(generator, choice));
  if (name.starts_with("csv:")) add(name, {});
  return {{"name", "pipeline"},
          {"promise",
           "every stage has run every micro-batch forward and backward, and the gradients are "
           "complete"},
          {"cell",
           "A box is a computation: F forward, B backward, or in two parts: I, the gradient of the "
           "input, and W, the gradient of the weights; its number is the micro-batch."},
          {"row", "rank"},
          {"column", "micro-batch"},
          {"algorithms", algorithms}};
}

}  // namespace ringside::cli
