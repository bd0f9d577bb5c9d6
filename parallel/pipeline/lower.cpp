#include "parallel/pipeline/lower.hpp"

#include <cstddef>
#include <map>
#include <set>

namespace ringside::pipeline_parallel {

namespace {

// The message, if the stage at its other end exists and lies on another rank.
std::optional<Action> if_between_ranks(const Schedule& schedule, const Action& message) {
  const int other = other_stage(message);
  if (!schedule.has_stage(other)) return std::nullopt;
  if (schedule.rank_of[other] == schedule.rank_of[message.stage]) return std::nullopt;
  return message;
}

// The messages of every lane in the order of the sends, each as its receiver names it, and where in
// its lane each message is.
class LaneQueues {
 public:
  struct Queue {
    std::vector<Action> messages;
    std::size_t received = 0;  // the first so many have been received
  };

  explicit LaneQueues(const Schedule& schedule) : schedule_(schedule) {
    places_.resize(static_cast<std::size_t>(2) * schedule.stages() * schedule.micro_batches);
    for (const std::vector<Action>& actions : schedule.actions) {
      for (const Action& action : actions) {
        const std::optional<Action> send = send_after(schedule, action);
        if (!send) continue;
        Queue& queue = queue_of(*send);
        place(matching(*send)) = queue.messages.size();
        queue.messages.push_back(matching(*send));
      }
    }
  }

  // Receives the message, and before it all that the lane carries before it.
  void receive(const Action& message, std::vector<Action>& actions) {
    Queue& queue = queue_of(message);
    if (!place(message)) actions.push_back(message);  // nobody sends it: verify() will say so
    while (place(message) && queue.received <= *place(message))
      actions.push_back(queue.messages[queue.received++]);
  }

 private:
  Queue& queue_of(const Action& message) { return queues_[lane_of(schedule_, message)]; }

  std::optional<std::size_t>& place(const Action& receive) {
    const std::size_t row =
        2 * static_cast<std::size_t>(receive.stage) + (receive.kind == Kind::receive_gradient);
    return places_[row * schedule_.micro_batches + receive.micro_batch];
  }

  const Schedule& schedule_;
  std::map<Lane, Queue> queues_;
  std::vector<std::optional<std::size_t>> places_;
};

void add_messages(Schedule& schedule) {
  const Schedule computations = schedule;
  LaneQueues queues(computations);
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    std::vector<Action>& actions = schedule.actions[rank];
    actions.clear();
    for (const Action& action : computations.actions[rank]) {
      if (const auto needed = receive_before(computations, action))
        queues.receive(*needed, actions);
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

std::vector<Lane> lanes_of(const Schedule& schedule) {
  std::set<Lane> lanes;
  for (int stage = 0; stage + 1 < schedule.stages(); ++stage) {
    const int here = schedule.rank_of[stage], there = schedule.rank_of[stage + 1];
    if (here == there) continue;
    lanes.insert({here, there, false});
    lanes.insert({there, here, true});
  }
  return {lanes.begin(), lanes.end()};
}

Schedule lower(const Schedule& schedule) {
  Schedule lowered = schedule;
  // Reductions first: then a gradient is sent before the rank reduces.
  if (!has_reductions(schedule)) add_reductions(lowered);
  if (!has_messages(schedule)) add_messages(lowered);
  return lowered;
}

}  // namespace ringside::pipeline_parallel
