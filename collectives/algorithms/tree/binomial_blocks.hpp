// Binomial trees of blocks: scatter and gather in ceil(log2(size)) steps.
//
// The tree is that of binomial.hpp. A message carries the blocks of a whole subtree, so it halves
// from step to step. For short blocks: linear.hpp moves fewer bytes in all, in size-1 steps.
//
//     scatter, size 8, root 0: the blocks that each rank holds and still needs
//                         0      1      2      3      4      5      6      7
//     at the start        0-7
//     after d = 4         0-3                         4-7
//     after d = 2         0-1           2-3           4-5           6-7
//     after d = 1         0      1      2      3      4      5      6      7
//
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", International Journal of High Performance Computing Applications 19 (2005), pages 49-66.
#pragma once

#include <algorithm>

#include "collectives/algorithms/reversed.hpp"
#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// Afterwards chunk r on rank r holds the root's chunk r. A subtree whose ranks go round the end,
// such as 7, 0, 1, is a circular range.
inline Schedule binomial_scatter(int size, int rank, int root) {
  const int index = wrap(rank - root, size);
  int top = 1;
  while (top < size) top *= 2;

  Schedule schedule{.chunks = size, .steps = {}};
  for (int distance = top / 2; distance >= 1; distance /= 2) {
    Step step;
    const auto subtree = [&](int child) {
      return circular(root + child, std::min(distance, size - child), 1, size);
    };
    const bool is_parent = index % (2 * distance) == 0;
    const bool is_child = index % (2 * distance) == distance;
    if (is_parent && index + distance < size)
      step.send = Send{.to = wrap(rank + distance, size), .chunks = subtree(index + distance)};
    if (is_child)
      step.receive = Receive{.from = wrap(rank - distance, size),
                             .chunks = subtree(index),
                             .action = Action::overwrite};
    schedule.steps.push_back(step);
  }
  return schedule;
}

// Afterwards chunk c on the root holds rank c's chunk c: the scatter in reverse.
inline Schedule binomial_gather(int size, int rank, int root) {
  return reversed(binomial_scatter(size, rank, root), Action::overwrite);
}

}  // namespace ringside::collectives
