// fails: chain
// says: world 3, root 0, k = 1: rank 0 sends 2.00 n to 2 ranks, expected at most 1.00 n to 1
//
// The root sends every piece to every rank.
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

inline Schedule chain_broadcast(int size, int rank, int root, int pieces) {
  const int index = wrap(rank - root, size);
  Schedule schedule{.chunks = pieces, .steps = {}};
  for (int step = 0; size > 1 && step < (size - 1) * pieces; ++step) {
    const auto is_piece = [pieces](int piece) { return piece >= 0 && piece < pieces; };
    const int child = 1 + step % (size - 1), piece = step / (size - 1);
    Step next;
    if (index == 0 && is_piece(piece))
      next.send = Send{.to = wrap(root + child, size), .chunks = {piece}};
    if (index == child)
      next.receive = Receive{.from = root, .chunks = {piece}, .action = Action::overwrite};
    schedule.steps.push_back(next);
  }
  return schedule;
}

}  // namespace ringside::collectives
