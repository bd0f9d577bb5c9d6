// The same messages in the other direction, the last one first.
//
// What goes down a tree then comes up it: a broadcast becomes a reduce, an all-gather a
// reduce-scatter (both with Action::add), and a scatter a gather (with Action::overwrite). That
// holds where no rank receives a chunk twice.
#pragma once

#include <ranges>

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

inline Schedule reversed(const Schedule& schedule, Action action) {
  Schedule back{.chunks = schedule.chunks, .steps = {}};
  for (const auto& [send, receive] : std::views::reverse(schedule.steps)) {
    Step step;
    if (receive) step.send = Send{.to = receive->from, .chunks = receive->chunks};
    if (send) step.receive = Receive{.from = send->to, .chunks = send->chunks, .action = action};
    back.steps.push_back(step);
  }
  return back;
}

}  // namespace ringside::collectives
