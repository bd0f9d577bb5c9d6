// The steps are there first; each piece is then put where it belongs.
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

inline Schedule chain_broadcast(int size, int rank, int root, int pieces) {
  const int index = wrap(rank - root, size);
  Schedule schedule{.chunks = pieces, .steps = {}};
  if (size == 1) return schedule;
  schedule.steps.resize(static_cast<std::size_t>(size - 2 + pieces));
  for (int piece = 0; piece < pieces; ++piece) {
    const auto at = static_cast<std::size_t>(piece + index);
    if (index > 0)
      schedule.steps[at - 1].receive =
          Receive{(rank + size - 1) % size, {piece}, Action::overwrite};
    if (index < size - 1) schedule.steps[at].send = Send{(rank + 1) % size, {piece}};
  }
  return schedule;
}

}  // namespace ringside::collectives
