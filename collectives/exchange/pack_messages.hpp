// Messages in an order, as a schedule: the steps that each rank takes.
#pragma once

#include <optional>
#include <vector>

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

struct Message {
  int from, to;
  ChunkRange chunks;
  Action action;
  std::optional<int> input = {};  // as Send::input
};

// The schedules of all ranks. A message takes the first step in which its sender sends nothing and
// its receiver receives nothing, after the steps whose data it needs: the result is what it would
// be one message after the other.
std::vector<Schedule> pack_messages(int size, int chunks, const std::vector<Message>& messages);

}  // namespace ringside::collectives
