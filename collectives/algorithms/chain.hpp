// The chain: the whole buffer from hand to hand, for long buffers and for what has a root.
//
// Told in steps it looks slow: size-1 of them, and in each only one rank sends.
//
//     place    0 ──▶ 1 ──▶ 2 ──▶ 3         place = rank - root: the root is place 0
//     step        0     1     2
//
// But the buffer travels in slices (executor.hpp), and a rank sends on slice 0 while slice 1 is
// coming in, so that all links are busy at once. With k slices it takes k + size - 2 times the time
// of a slice, not k (size-1): for long buffers the time to send the buffer once, where the binomial
// tree takes log2(size) times as long.
//
// Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory,
// practice, and experience", Concurrency and Computation: Practice and Experience 19 (2007), pages
// 1749-1783; NCCL's broadcast and reduce are such chains.
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// Afterwards every rank holds the root's buffer. In step s place s sends to place s+1.
inline Schedule chain_broadcast(int size, int rank, int root) {
  const int place = wrap(rank - root, size);

  Schedule schedule{.chunks = 1, .steps = {}};
  for (int s = 0; s < size - 1; ++s) {
    Step step;
    if (place == s) step.send = Send{.to = wrap(rank + 1, size), .chunks = {0}};
    if (place == s + 1)
      step.receive =
          Receive{.from = wrap(rank - 1, size), .chunks = {0}, .action = Action::overwrite};
    schedule.steps.push_back(step);
  }
  return schedule;
}

// Afterwards the root holds the sum of all ranks' buffers. The broadcast read backwards: the last
// place begins, and each adds its own.
//
//     size 4, root 0: what they hold       0         1        2      3
//     step 0                                                  [2+3]
//     step 1                                         [1+2+3]
//     step 2                               [0+1+2+3]
inline Schedule chain_reduce(int size, int rank, int root) {
  const int place = wrap(rank - root, size);

  Schedule schedule{.chunks = 1, .steps = {}};
  for (int s = size - 2; s >= 0; --s) {
    Step step;
    if (place == s + 1) step.send = Send{.to = wrap(rank - 1, size), .chunks = {0}};
    if (place == s)
      step.receive = Receive{.from = wrap(rank + 1, size), .chunks = {0}, .action = Action::add};
    schedule.steps.push_back(step);
  }
  return schedule;
}

}  // namespace ringside::collectives
