#include "parallel/pipeline/schedule.hpp"

#include <array>

#include <fmt/format.h>

namespace ringside::pipeline_parallel {

namespace {

bool has_action(const Schedule& schedule, bool (*wanted)(Kind)) {
  for (const std::vector<Action>& actions : schedule.actions) {
    for (const Action& action : actions) {
      if (wanted(action.kind)) return true;
    }
  }
  return false;
}

}  // namespace

const char* letters_of(Kind kind) {
  constexpr std::array letters{"F",      "B",      "I",      "W",          "SEND_F",
                               "RECV_F", "SEND_B", "RECV_B", "REDUCE_GRAD"};
  return letters.at(static_cast<std::size_t>(kind));
}

std::string text_of(const Action& action) {
  if (action.micro_batch == no_micro_batch)
    return fmt::format("{}{}", action.stage, letters_of(action.kind));
  return fmt::format("{}{}{}", action.stage, letters_of(action.kind), action.micro_batch);
}

std::vector<int> stages_of(const Schedule& schedule, int rank) {
  std::vector<int> stages;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    if (schedule.rank_of[stage] == rank) stages.push_back(stage);
  }
  return stages;
}

bool has_messages(const Schedule& schedule) {
  return has_action(schedule, [](Kind kind) { return is_send(kind) || is_receive(kind); });
}

bool has_reductions(const Schedule& schedule) {
  return has_action(schedule, [](Kind kind) { return kind == Kind::reduce_gradients; });
}

LayerRange layers_of_stage(std::int64_t layers, int stages, int stage) {
  const std::int64_t each = layers / stages, more = layers % stages;
  const auto count = [&](std::int64_t s) {
    const bool in_between = s > 0 && s < stages - 1;
    return each + (in_between ? s <= more : s == 0 && more > 0 && more > stages - 2);
  };
  LayerRange range{0, 0};
  for (std::int64_t s = 0; s <= stage; ++s) range = {range.end, range.end + count(s)};
  return range;
}

std::vector<int> loop_placement(int ranks, int stages_per_rank) {
  std::vector<int> rank_of;
  for (int stage = 0; stage < ranks * stages_per_rank; ++stage) rank_of.push_back(stage % ranks);
  return rank_of;
}

std::vector<int> v_placement(int ranks) {
  std::vector<int> rank_of;
  for (int rank = 0; rank < ranks; ++rank) rank_of.push_back(rank);
  for (int rank = ranks - 1; rank >= 0; --rank) rank_of.push_back(rank);
  return rank_of;
}

}  // namespace ringside::pipeline_parallel
