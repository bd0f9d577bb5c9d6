// Pairwise exchange: the all-to-all. Every rank has a block for every rank; afterwards it has a
// block from every rank.
//
// Seen as a table with a row for each rank, the buffers are transposed:
//
//     rank 0     0.0  0.1  0.2                    rank 0     0.0  1.0  2.0         r.c is chunk c of rank r's input
//     rank 1     1.0  1.1  1.2        ──▶         rank 1     0.1  1.1  2.1
//     rank 2     2.0  2.1  2.2                    rank 2     0.2  1.2  2.2
//
// In step s the ranks whose numbers add up to s (modulo size) exchange: rank r's chunk p lands in
// rank p's chunk r, and the other way round. A rank thus receives into the very chunk that it has
// just sent, which is why the exchange also works in place. Every block goes straight to where it
// belongs, size-1 of them from each rank, and no algorithm can send less.
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
    if (peer != rank) {  // a rank's block for itself stays where it is
      step.send = Send{.to = peer, .chunks = {rank}, .input = peer};
      step.receive = Receive{.from = peer, .chunks = {peer}, .action = Action::overwrite};
    }
    schedule.steps.push_back(step);
  }
  return schedule;
}

}  // namespace ringside::collectives
