// Pairwise exchange: the all-to-all. Before, every rank has a chunk for every rank; afterwards it
// has a chunk from every rank.
//
// As a table with a row for each rank, the buffers are transposed (r.c is chunk c of rank r's
// input):
//
//     rank 0     0.0  0.1  0.2                    rank 0     0.0  1.0  2.0
//     rank 1     1.0  1.1  1.2        ──▶         rank 1     0.1  1.1  2.1
//     rank 2     2.0  2.1  2.2                    rank 2     0.2  1.2  2.2
//
// In step s the ranks a and b with a + b = s (modulo size) exchange: a's chunk b becomes b's chunk
// a, and b's chunk a becomes a's chunk b. A rank receives into the chunk that it sends in the same
// step, so the exchange also works in place. Each rank sends size-1 chunks directly to their
// destination, and no algorithm sends less.
//
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", International Journal of High Performance Computing Applications 19 (2005), pages 49-66,
// section 4.4 (long messages).
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

inline Schedule pairwise_all_to_all(int size, int rank) {
  Schedule schedule{.chunks = size, .steps = {}};
  if (size == 1) return schedule;
  for (int s = 0; s < size; ++s) {
    const int peer = wrap(s - rank, size);
    Step step;
    if (peer != rank) {  // a rank's chunk for itself stays where it is
      step.send = Send{.to = peer, .chunks = {rank}, .input = peer};
      step.receive = Receive{.from = peer, .chunks = {peer}, .action = Action::overwrite};
    }
    schedule.steps.push_back(step);
  }
  return schedule;
}

}  // namespace ringside::collectives
