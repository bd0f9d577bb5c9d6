// The chain: broadcast and reduce of long buffers, passed from each rank to the next.
//
// The steps look slow: there are size-1, and in each only one rank sends.
//
//     index    0 ──▶ 1 ──▶ 2 ──▶ 3         index = rank - root, modulo size: the root has index 0
//     step        0     1     2
//
// But the pipelined executor sends the buffer in slices: a rank forwards slice 0 while slice 1
// arrives, so all links are busy at once. k slices take k + size - 2 times as long as one slice,
// not k (size-1) times. For long buffers that is about the time to send the buffer once; a binomial
// tree takes log2(size) times as long.
//
// Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory,
// practice, and experience", Concurrency and Computation: Practice and Experience 19 (2007), pages
// 1749-1783; NCCL's broadcast and reduce are such chains.
#pragma once

#include "collectives/algorithms/reversed.hpp"
#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// Afterwards every rank holds the root's buffer. In step s index s sends to index s+1.
inline Schedule chain_broadcast(int size, int rank, int root) {
  const int index = wrap(rank - root, size);

  Schedule schedule{.chunks = 1, .steps = {}};
  for (int s = 0; s < size - 1; ++s) {
    Step step;
    if (index == s) step.send = Send{.to = wrap(rank + 1, size), .chunks = {0}};
    if (index == s + 1)
      step.receive =
          Receive{.from = wrap(rank - 1, size), .chunks = {0}, .action = Action::overwrite};
    schedule.steps.push_back(step);
  }
  return schedule;
}

// Afterwards the root holds the sum of all ranks' buffers. It is the broadcast in reverse: the last
// index begins, and each rank adds its own buffer.
//
//     size 4, root 0       rank 0       rank 1     rank 2     rank 3
//     step 0               0            1          [2+3]      3
//     step 1               0            [1+2+3]    2+3        3
//     step 2               [0+1+2+3]    1+2+3      2+3        3
inline Schedule chain_reduce(int size, int rank, int root) {
  return reversed(chain_broadcast(size, rank, root), Action::add);
}

}  // namespace ringside::collectives
