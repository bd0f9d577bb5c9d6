// fails: promise
// says: at the end chunk 0 on rank 0 should not hold rank 0 and lacks rank 1 (k = 1)
//
// Every rank counts from rank 0, whatever the root is.
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

inline Schedule chain_broadcast(int size, int rank, int root, int pieces) {
  const int index = rank;
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
