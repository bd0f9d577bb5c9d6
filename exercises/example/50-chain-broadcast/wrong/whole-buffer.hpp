// fails: steps
// says: world 3, root 0, k = 2: 4 steps, expected 3
//
// A rank passes on when it has everything: the pieces of one rank end before the next one begins.
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

inline Schedule chain_broadcast(int size, int rank, int root, int pieces) {
  const int index = wrap(rank - root, size);
  Schedule schedule{.chunks = pieces, .steps = {}};
  for (int step = 0; size > 1 && step < (size - 1) * pieces; ++step) {
    const auto is_piece = [pieces](int piece) { return piece >= 0 && piece < pieces; };
    const int sent = step - index * pieces, received = sent + pieces;
    Step next;
    if (index < size - 1 && is_piece(sent))
      next.send = Send{.to = wrap(rank + 1, size), .chunks = {sent}};
    if (index > 0 && is_piece(received))
      next.receive =
          Receive{.from = wrap(rank - 1, size), .chunks = {received}, .action = Action::overwrite};
    schedule.steps.push_back(next);
  }
  return schedule;
}

}  // namespace ringside::collectives
