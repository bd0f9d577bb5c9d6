#include "cli/pictures/player/pipeline_plays.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/pictures/pipeline/pipeline_picture.hpp"
#include "cli/pictures/player/player_data.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "parallel/pipeline/lower.hpp"

namespace ringside::cli {

using namespace pipeline_parallel;

namespace {

// Calls f(rank, action, span) for each action.
template <class F>
void for_each(const TimedSchedule& timed, F f) {
  for (int rank = 0; rank < timed.schedule.ranks(); ++rank)
    for (std::size_t i = 0; i < timed.schedule.actions[rank].size(); ++i)
      f(rank, timed.schedule.actions[rank][i], timed.timing.spans[rank][i]);
}

// The numbers of micro-batches that the page offers on this many ranks.
std::set<int> played_micro_batches(int ranks) {
  return {1, 2, 4, 8, 16, ranks, 2 * ranks};
}

Json boxes_of(const TimedSchedule& timed) {
  Json boxes = Json::array();
  for (int rank = 0; rank < timed.schedule.ranks(); ++rank) {
    Json lane = Json::array();
    for (const Computation& box : lane_of(timed, rank))
      lane.push_back({text_of(box.action), box.span.start, box.span.end, box.pale});
    boxes.push_back(lane);
  }
  return boxes;
}

// All times at which a computation starts or ends, or a message arrives, without the start of all.
std::set<double> times_of(const TimedSchedule& timed) {
  std::set<double> times;
  for_each(timed, [&](int, const Action& action, Span span) {
    if (is_computation(action.kind)) times.insert({span.start, span.end});
    if (is_send(action.kind)) times.insert(span.end);
  });
  times.erase(0);
  return times;
}

// What the ranks compute between two times: "rank 0 F1, rank 1 F0", where ranks have several stages
// "rank 0 4F1".
std::string what_is_computed(const TimedSchedule& timed, double begin, double end) {
  std::vector<std::string> words;
  for_each(timed, [&](int rank, const Action& action, Span span) {
    if (!is_computation(action.kind) || span.start >= end || span.end <= begin) return;
    const bool one_stage = timed.schedule.stages() == timed.schedule.ranks();
    words.push_back(fmt::format("rank {} {}{}{}", rank,
                                one_stage ? "" : fmt::to_string(action.stage),
                                letters_of(action.kind), action.micro_batch));
  });
  return words.empty() ? "nothing is computed" : fmt::format("{}", fmt::join(words, ", "));
}

// The messages between ranks that arrive after `begin`, and at `end` at the latest.
Json messages_of(const TimedSchedule& timed, double begin, double end) {
  Json messages = Json::array();
  for_each(timed, [&](int rank, const Action& action, Span span) {
    if (!is_send(action.kind) || span.end <= begin || span.end > end) return;
    const bool forward = action.kind == Kind::send_activation;
    messages.push_back(
        {{"from", rank},
         {"to", timed.schedule.rank_of[other_stage(action)]},
         {"label", fmt::format("{}{}", forward ? "F" : "B", action.micro_batch)},
         {"words", fmt::format("{} of micro-batch {}", forward ? "activations" : "gradients",
                               action.micro_batch)}});
  });
  return messages;
}

// The activations that a rank holds at a time: of each forward that has begun, until the backward
// that needs it last has ended.
std::vector<int> held_at(const TimedSchedule& timed, double time) {
  std::vector<int> held(static_cast<std::size_t>(timed.schedule.ranks()), 0);
  for_each(timed, [&](int rank, const Action& action, Span span) {
    const bool frees = action.kind == Kind::backward || action.kind == Kind::backward_weight;
    if (action.kind == Kind::forward && span.start < time) ++held[static_cast<std::size_t>(rank)];
    if (frees && span.end <= time) --held[static_cast<std::size_t>(rank)];
  });
  return held;
}

Json play_of(const Schedule& schedule, const Durations& durations) {
  TimedSchedule timed{lower(schedule), {}};
  timed.timing = time_of(timed.schedule, durations);
  Json steps = Json::array();
  double begin = 0;
  for (const double end : times_of(timed)) {
    steps.push_back({{"says", what_is_computed(timed, begin, end)},
                     {"until", end},
                     {"held", held_at(timed, end)},
                     {"messages", messages_of(timed, begin, end)}});
    begin = end;
  }
  return {{"boxes", boxes_of(timed)}, {"bubble", timed.timing.bubble()}, {"steps", steps}};
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
