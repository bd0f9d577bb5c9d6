#include "parallel/pipeline/proof/verify.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "parallel/pipeline/lower.hpp"
#include "parallel/pipeline/proof/deadlock.hpp"
#include "parallel/pipeline/proof/places.hpp"

namespace ringside::pipeline_parallel {

namespace {

using Findings = std::vector<std::string>;

std::string fault_of_action(const Schedule& schedule, int rank, const Action& action) {
  const std::string has = fmt::format("rank {} has {}, but ", rank, text_of(action));
  if (!schedule.has_stage(action.stage))
    return has + fmt::format("the last stage is {}", schedule.stages() - 1);
  if (schedule.rank_of[action.stage] != rank)
    return has +
           fmt::format("stage {} is on rank {}", action.stage, schedule.rank_of[action.stage]);
  if (action.kind == Kind::reduce_gradients)
    return action.micro_batch == no_micro_batch ? "" : has + "a reduction has no micro-batch";
  if (action.micro_batch < 0 || action.micro_batch >= schedule.micro_batches)
    return has + fmt::format("the last micro-batch is {}", schedule.micro_batches - 1);
  if (is_computation(action.kind)) return "";
  const int other = other_stage(action);
  if (other < 0) return has + "no stage comes before stage 0";
  if (other >= schedule.stages()) return has + fmt::format("stage {} is the last", action.stage);
  if (schedule.rank_of[other] == rank)
    return has + fmt::format("stage {} is on the same rank: no message is needed", other);
  return "";
}

Findings faults_of_shape(const Schedule& schedule) {
  if (schedule.ranks() == 0 || schedule.stages() == 0 || schedule.micro_batches < 1) {
    return {
        fmt::format("a schedule needs at least 1 rank, stage and micro-batch, not {}, {} and {}",
                    schedule.ranks(), schedule.stages(), schedule.micro_batches)};
  }
  Findings found;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int rank = schedule.rank_of[stage];
    if (rank < 0 || rank >= schedule.ranks())
      found.push_back(fmt::format("stage {} is on rank {}, but the last rank is {}", stage, rank,
                                  schedule.ranks() - 1));
  }
  return found;
}

Findings faults_of_actions(const Schedule& schedule) {
  Findings found;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    if (stages_of(schedule, rank).empty())
      found.push_back(fmt::format("rank {} has no stage", rank));
    for (const Action& action : schedule.actions[rank]) {
      const std::string fault = fault_of_action(schedule, rank, action);
      if (!fault.empty()) found.push_back(fault);
    }
  }
  return found;
}

Findings faults_of_repetition(const Schedule& schedule, const Places& places) {
  Findings found;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const std::vector<Action>& actions = schedule.actions[rank];
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (places.of(actions[i]) != static_cast<int>(i))
        found.push_back(fmt::format("rank {} has {} twice", rank, text_of(actions[i])));
    }
  }
  return found;
}

// What is missing of the backward of one stage and micro-batch.
std::string fault_of_backward(const Schedule& schedule, const Places& places, int stage,
                              int micro_batch) {
  const int rank = schedule.rank_of[stage];
  const Action whole{Kind::backward, stage, micro_batch};
  const Action input{Kind::backward_input, stage, micro_batch};
  const Action weight{Kind::backward_weight, stage, micro_batch};
  const bool has_input = places.has(input), has_weight = places.has(weight);
  if (places.has(whole)) {
    if (!has_input && !has_weight) return "";
    return fmt::format("rank {} has {} and also {}: backward is one action, or I and W", rank,
                       text_of(whole), text_of(has_input ? input : weight));
  }
  if (has_input && has_weight) return "";
  const Action missing = has_input ? weight : has_weight ? input : whole;
  const Action present = has_input ? input : weight;
  if (missing == whole) {
    return fmt::format("{} is missing: rank {} never runs backward of stage {} for micro-batch {}",
                       text_of(whole), rank, stage, micro_batch);
  }
  return fmt::format("{} is missing: rank {} has {}, which is half of backward", text_of(missing),
                     rank, text_of(present));
}

Findings faults_of_computation(const Schedule& schedule, const Places& places) {
  Findings found;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    for (int i = 0; i < schedule.micro_batches; ++i) {
      const Action forward{Kind::forward, stage, i};
      if (!places.has(forward)) {
        found.push_back(
            fmt::format("{} is missing: rank {} never runs forward of stage {} for micro-batch {}",
                        text_of(forward), schedule.rank_of[stage], stage, i));
      }
      const std::string fault = fault_of_backward(schedule, places, stage, i);
      if (!fault.empty()) found.push_back(fault);
    }
  }
  return found;
}

// What must come first on the same rank, and why.
using Reason = std::pair<Action, const char*>;

std::vector<Reason> what_comes_first(const Schedule& schedule, const Places& places,
                                     const Action& action) {
  const auto [kind, stage, i] = action;
  if (kind == Kind::backward_weight)
    return {{{Kind::backward_input, stage, i}, "which leaves behind what W needs"}};
  const auto is_here = [&](int other) {
    return schedule.has_stage(other) && schedule.rank_of[other] == schedule.rank_of[stage];
  };
  if (kind == Kind::forward) {
    if (!is_here(stage - 1)) return {};
    return {{{Kind::forward, stage - 1, i}, "whose output is its input"}};
  }
  std::vector<Reason> reasons = {{{Kind::forward, stage, i}, "whose activations backward needs"}};
  if (is_here(stage + 1)) {
    const Action whole{Kind::backward, stage + 1, i};
    reasons.push_back({places.has(whole) ? whole : Action{Kind::backward_input, stage + 1, i},
                       "whose gradient it needs"});
  }
  return reasons;
}

Findings faults_of_order(const Schedule& schedule, const Places& places) {
  Findings found;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    for (const Action& action : schedule.actions[rank]) {
      if (!is_computation(action.kind)) continue;
      for (const auto& [first, reason] : what_comes_first(schedule, places, action)) {
        if (places.of(first) > places.of(action))
          found.push_back(fmt::format("rank {} runs {} before {}, {}", rank, text_of(action),
                                      text_of(first), reason));
      }
    }
  }
  return found;
}

// The messages of one computation, as lower() would add them, must be there, before and after it.
Findings faults_of_neighbours(const Schedule& schedule, const Places& places) {
  Findings found;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    for (const Action& action : schedule.actions[rank]) {
      const auto receive = receive_before(schedule, action), send = send_after(schedule, action);
      if (receive && (!places.has(*receive) || places.of(*receive) > places.of(action)))
        found.push_back(fmt::format("rank {} runs {} {} {}", rank, text_of(action),
                                    places.has(*receive) ? "before" : "without",
                                    text_of(*receive)));
      if (send && places.has(*send) && places.of(*send) < places.of(action))
        found.push_back(fmt::format("rank {} has {} before {}, which makes what is sent", rank,
                                    text_of(*send), text_of(action)));
    }
  }
  return found;
}

Findings faults_of_ends(const Schedule& schedule, const Places& places) {
  Findings found;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    for (const Action& action : schedule.actions[rank]) {
      if (!is_send(action.kind) && !is_receive(action.kind)) continue;
      const Action other_end = matching(action);
      if (places.has(other_end)) continue;
      found.push_back(fmt::format("rank {} has {}, but rank {} has no {}", rank, text_of(action),
                                  schedule.rank_of[other_end.stage], text_of(other_end)));
    }
  }
  return found;
}

// The messages of each lane in the order of one end, each as its sender names it.
std::map<Lane, std::vector<Action>> messages(const Schedule& schedule, bool (*of_this_end)(Kind)) {
  std::map<Lane, std::vector<Action>> lanes;
  for (const std::vector<Action>& actions : schedule.actions) {
    for (const Action& action : actions) {
      if (of_this_end(action.kind))
        lanes[lane_of(schedule, action)].push_back(is_send(action.kind) ? action
                                                                        : matching(action));
    }
  }
  return lanes;
}

Findings faults_of_lanes(const Schedule& schedule) {
  Findings found;
  std::map<Lane, std::vector<Action>> received_on = messages(schedule, is_receive);
  for (const auto& [lane, sent] : messages(schedule, is_send)) {
    const std::vector<Action>& received = received_on[lane];
    const auto [a, b] = std::mismatch(sent.begin(), sent.end(), received.begin());
    if (a == sent.end()) continue;
    found.push_back(
        fmt::format("rank {} sends {} where rank {} receives {}: both ends of a lane must have the "
                    "same order",
                    lane.from, text_of(*a), lane.to, text_of(matching(*b))));
  }
  return found;
}

Findings faults_of_reductions(const Schedule& schedule, const Places& places) {
  Findings found;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int rank = schedule.rank_of[stage];
    const Action reduction{Kind::reduce_gradients, stage};
    if (!places.has(reduction)) {
      found.push_back(fmt::format("{} is missing: rank {} never reduces the gradients of stage {}",
                                  text_of(reduction), rank, stage));
      continue;
    }
    const std::vector<Action>& actions = schedule.actions[rank];
    for (std::size_t i = places.of(reduction); i < actions.size(); ++i) {
      const Kind kind = actions[i].kind;
      if (actions[i].stage != stage) continue;
      if (kind != Kind::backward && kind != Kind::backward_weight) continue;
      found.push_back(fmt::format("rank {} has {} before {}, which adds to these gradients", rank,
                                  text_of(reduction), text_of(actions[i])));
      break;
    }
  }
  return found;
}

}  // namespace

std::vector<std::string> verify(const Schedule& schedule) {
  Findings found = faults_of_shape(schedule);
  if (found.empty()) found = faults_of_actions(schedule);
  if (!found.empty()) return found;

  const Places computations(schedule);
  found = faults_of_repetition(schedule, computations);
  if (found.empty()) found = faults_of_computation(schedule, computations);
  if (found.empty()) found = faults_of_order(schedule, computations);
  if (!found.empty()) return found;

  const Schedule lowered = lower(schedule);
  const Places places(lowered);
  found = faults_of_ends(lowered, places);
  if (found.empty()) found = faults_of_neighbours(lowered, places);
  if (found.empty()) found = faults_of_lanes(lowered);
  if (found.empty()) found = faults_of_reductions(lowered, places);
  if (!found.empty()) return found;

  for (const Sends sends : {Sends::buffered, Sends::one_per_lane}) {
    const std::string circle = find_deadlock(lowered, sends);
    if (!circle.empty()) return {circle};
  }
  return {};
}

std::vector<int> most_in_flight(const Schedule& schedule) {
  std::vector<int> most;
  for (const std::vector<Action>& actions : schedule.actions) {
    int held = 0, most_held = 0;
    for (const Action& action : actions) {
      if (action.kind == Kind::forward) most_held = std::max(most_held, ++held);
      if (action.kind == Kind::backward || action.kind == Kind::backward_weight) --held;
    }
    most.push_back(most_held);
  }
  return most;
}

}  // namespace ringside::pipeline_parallel
