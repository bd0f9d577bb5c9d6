#include "parallel/pipeline/lower.hpp"

#include <cstddef>
#include <utility>

namespace ringside::pipeline_parallel {

namespace {

// The message, if the stage at its other end exists and lies on another rank.
std::optional<Action> if_between_ranks(const Schedule& schedule, const Action& message) {
  const int other = other_stage(message);
  if (!schedule.has_stage(other)) return std::nullopt;
  if (schedule.rank_of[other] == schedule.rank_of[message.stage]) return std::nullopt;
  return message;
}

// Writes down what happens if every action takes one unit of time: a send when its tensor has been
// made, and at the same time its receive on the other rank.
class Messages {
 public:
  explicit Messages(Schedule& schedule)
      : schedule_(schedule),
        computations_(std::move(schedule.actions)),
        next_(computations_.size()),
        posted_(static_cast<std::size_t>(2) * schedule.stages() * schedule.micro_batches) {
    schedule.actions.assign(computations_.size(), {});
  }

  void add() {
    while (take_unit()) {
    }
    // Ranks that have not reached their end wait for each other, and find_deadlock() will say so.
    for (std::size_t rank = 0; rank < computations_.size(); ++rank)
      for (std::size_t i = next_[rank]; i < computations_[rank].size(); ++i)
        post(computations_[rank][i]);
    for (std::size_t rank = 0; rank < computations_.size(); ++rank)
      while (!finished(rank)) {
        take(rank);
        send(rank);
      }
  }

 private:
  bool finished(std::size_t rank) const { return next_[rank] == computations_[rank].size(); }

  // One action of every rank that has what it needs. Returns whether there was any.
  bool take_unit() {
    std::vector<std::size_t> ready;
    for (std::size_t rank = 0; rank < computations_.size(); ++rank) {
      if (finished(rank)) continue;
      const auto needed = receive_before(schedule_, computations_[rank][next_[rank]]);
      if (!needed || posted(*needed)) ready.push_back(rank);
    }
    for (const std::size_t rank : ready) take(rank);
    for (const std::size_t rank : ready) post(send(rank));
    return !ready.empty();
  }

  void take(std::size_t rank) {
    schedule_.actions[rank].push_back(computations_[rank][next_[rank]++]);
  }

  // What the rank has just computed. Returns it.
  const Action& send(std::size_t rank) {
    const Action& computed = computations_[rank][next_[rank] - 1];
    if (const auto message = send_after(schedule_, computed))
      schedule_.actions[rank].push_back(*message);
    return computed;
  }

  void post(const Action& computation) {
    const auto message = send_after(schedule_, computation);
    if (!message) return;
    const Action receive = matching(*message);
    schedule_.actions[schedule_.rank_of[receive.stage]].push_back(receive);
    posted(receive) = true;
  }

  std::vector<bool>::reference posted(const Action& receive) {
    const std::size_t row =
        2 * static_cast<std::size_t>(receive.stage) + carries_gradient(receive.kind);
    return posted_[row * schedule_.micro_batches + receive.micro_batch];
  }

  Schedule& schedule_;
  const std::vector<std::vector<Action>> computations_;
  std::vector<std::size_t> next_;  // of each rank
  std::vector<bool> posted_;
};

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

std::optional<Action> receive_before(const Schedule& schedule, const Action& action) {
  return has_neighbours(action.kind) ? if_between_ranks(schedule, input_of(action)) : std::nullopt;
}

std::optional<Action> send_after(const Schedule& schedule, const Action& action) {
  return has_neighbours(action.kind) ? if_between_ranks(schedule, output_of(action)) : std::nullopt;
}

Lane lane_of(const Schedule& schedule, const Action& message) {
  const int here = schedule.rank_of[message.stage], there = schedule.rank_of[other_stage(message)];
  const bool gradients = carries_gradient(message.kind);
  return is_send(message.kind) ? Lane{here, there, gradients} : Lane{there, here, gradients};
}

Schedule lower(const Schedule& schedule) {
  Schedule lowered = schedule;
  // Reductions first: then a gradient is sent before the rank reduces.
  if (!has_reductions(schedule)) add_reductions(lowered);
  if (!has_messages(schedule)) Messages(lowered).add();
  return lowered;
}

}  // namespace ringside::pipeline_parallel
