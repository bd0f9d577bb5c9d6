#include "pipeline_parallel/lower.hpp"

#include <cstddef>
#include <optional>

namespace ringside::pipeline_parallel {

namespace {

// The message, if the stage at its other end exists and lies on another rank.
std::optional<Action> if_between_ranks(const Schedule& schedule, const Action& message) {
  const int other = other_stage(message);
  if (other < 0 || other >= schedule.stages()) return std::nullopt;
  if (schedule.rank_of[other] == schedule.rank_of[message.stage]) return std::nullopt;
  return message;
}

// The message that this computation waits for. W waits for none.
std::optional<Action> receive_before(const Schedule& schedule, const Action& action) {
  if (!is_computation(action.kind) || action.kind == Kind::backward_weight) return std::nullopt;
  const Kind kind =
      action.kind == Kind::forward ? Kind::receive_activation : Kind::receive_gradient;
  return if_between_ranks(schedule, {kind, action.stage, action.micro_batch});
}

// The message that carries away what this computation makes. W makes nothing for others.
std::optional<Action> send_after(const Schedule& schedule, const Action& action) {
  if (!is_computation(action.kind) || action.kind == Kind::backward_weight) return std::nullopt;
  const Kind kind = action.kind == Kind::forward ? Kind::send_activation : Kind::send_gradient;
  return if_between_ranks(schedule, {kind, action.stage, action.micro_batch});
}

struct Lane {
  std::vector<Action> messages;  // in the order of the sends, each as its receiver names it
  std::size_t received = 0;      // the first so many have been received
};

// All lanes, and where in its lane each message is.
class Lanes {
 public:
  explicit Lanes(const Schedule& schedule)
      : ranks_(schedule.ranks()), micro_batches_(schedule.micro_batches) {
    lanes_.resize(static_cast<std::size_t>(ranks_) * ranks_);
    places_.resize(static_cast<std::size_t>(2) * schedule.stages() * micro_batches_, nowhere);
    for (int rank = 0; rank < ranks_; ++rank) {
      for (const Action& action : schedule.actions[rank]) {
        const std::optional<Action> send = send_after(schedule, action);
        if (!send) continue;
        Lane& lane = between(rank, schedule.rank_of[other_stage(*send)]);
        place(matching(*send)) = lane.messages.size();
        lane.messages.push_back(matching(*send));
      }
    }
  }

  Lane& between(int from, int to) { return lanes_[static_cast<std::size_t>(from) * ranks_ + to]; }

  static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);
  std::size_t& place(const Action& receive) {
    const std::size_t direction = receive.kind == Kind::receive_gradient ? 1 : 0;
    return places_[(2 * static_cast<std::size_t>(receive.stage) + direction) * micro_batches_ +
                   receive.micro_batch];
  }

 private:
  int ranks_, micro_batches_;
  std::vector<Lane> lanes_;
  std::vector<std::size_t> places_;
};

void add_messages(Schedule& schedule) {
  const Schedule computations = schedule;
  Lanes lanes(computations);
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    std::vector<Action>& actions = schedule.actions[rank];
    actions.clear();
    for (const Action& action : computations.actions[rank]) {
      if (const std::optional<Action> needed = receive_before(computations, action)) {
        Lane& lane = lanes.between(computations.rank_of[other_stage(*needed)], rank);
        const std::size_t place = lanes.place(*needed);
        if (place == Lanes::nowhere) actions.push_back(*needed);  // verify() will say so
        while (place != Lanes::nowhere && lane.received <= place)
          actions.push_back(lane.messages[lane.received++]);
      }
      actions.push_back(action);
      if (const auto send = send_after(computations, action)) actions.push_back(*send);
    }
  }
}

void add_reductions(Schedule& schedule) {
  for (std::vector<Action>& actions : schedule.actions) {
    std::vector<bool> reduced(schedule.stages());
    std::vector<Action> backwards;  // the actions from the last to the first
    while (!actions.empty()) {
      const Action action = actions.back();
      actions.pop_back();
      const bool adds_gradients =
          action.kind == Kind::backward || action.kind == Kind::backward_weight;
      if (adds_gradients && !reduced[action.stage]) {
        backwards.push_back({Kind::reduce_gradients, action.stage});
        reduced[action.stage] = true;
      }
      backwards.push_back(action);
    }
    actions.assign(backwards.rbegin(), backwards.rend());
  }
}

}  // namespace

Schedule lower(const Schedule& schedule) {
  Schedule lowered = schedule;
  if (!has_messages(schedule)) add_messages(lowered);
  if (!has_reductions(schedule)) add_reductions(lowered);
  return lowered;
}

}  // namespace ringside::pipeline_parallel
