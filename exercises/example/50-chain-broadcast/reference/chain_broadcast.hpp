// A broadcast along a chain, piece by piece.
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// The root divides its buffer into `pieces` chunks. Each rank passes a piece on to the next rank
// while it receives the following one:
//
//     size 3, root 0, 2 pieces      step 0      step 1      step 2
//     rank 0 sends                  0           1
//     rank 1 sends                              0           1
inline Schedule chain_broadcast(int size, int rank, int root, int pieces) {
  const int index = wrap(rank - root, size);
  Schedule schedule{.chunks = pieces, .steps = {}};
  for (int step = 0; size > 1 && step < size - 2 + pieces; ++step) {
    const auto is_piece = [pieces](int piece) { return piece >= 0 && piece < pieces; };
    const int sent = step - index, received = sent + 1;
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
