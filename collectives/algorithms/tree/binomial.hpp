// Binomial trees: broadcast and reduce in ceil(log2(size)) steps, each with the whole buffer. For
// short buffers.
//
// Every rank counts from the root: its index in the tree is rank - root, modulo size. In a step of
// distance d the indices 0, 2d, 4d, ... are parents, and index i+d is the child of i:
//
//     index    0      1      2      3      4      5      6      7
//     d = 4    ●━━━━━━━━━━━━━━━━━━━━━━━━━━━●
//     d = 2    ●━━━━━━━━━━━━━●             ●━━━━━━━━━━━━━●
//     d = 1    ●━━━━━━●      ●━━━━━━●      ●━━━━━━●      ●━━━━━━●
//
// A broadcast goes down the drawing, from parents to children; a reduce goes up, from children to
// parents. Where the size is not a power of two, some parents have no child in a step, and idle.
//
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", International Journal of High Performance Computing Applications 19 (2005), pages 49-66.
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// Afterwards every rank holds the root's buffer.
//
// Size 8, root 0: who holds it         0 . . . . . . .
//     after d = 4                      0 . . . 4 . . .
//     after d = 2                      0 . 2 . 4 . 6 .
//     after d = 1                      0 1 2 3 4 5 6 7
inline Schedule binomial_broadcast(int size, int rank, int root) {
  const int index = wrap(rank - root, size);
  int top = 1;
  while (top < size) top *= 2;

  Schedule schedule{.chunks = 1, .steps = {}};
  for (int distance = top / 2; distance >= 1; distance /= 2) {
    Step step;
    const bool is_parent = index % (2 * distance) == 0;
    const bool is_child = index % (2 * distance) == distance;
    if (is_parent && index + distance < size)
      step.send = Send{.to = wrap(rank + distance, size), .chunks = {0}};
    if (is_child)
      step.receive =
          Receive{.from = wrap(rank - distance, size), .chunks = {0}, .action = Action::overwrite};
    schedule.steps.push_back(step);
  }
  return schedule;
}

// Afterwards the root holds the sum of all ranks' buffers; the other ranks hold partial sums.
//
// Size 8, root 0: what they hold       0    1    2    3    4    5    6    7
//     after d = 1                      01        23        45        67
//     after d = 2                      0123                4567
//     after d = 4                      01234567
inline Schedule binomial_reduce(int size, int rank, int root) {
  const int index = wrap(rank - root, size);

  Schedule schedule{.chunks = 1, .steps = {}};
  for (int distance = 1; distance < size; distance *= 2) {
    Step step;
    const bool is_parent = index % (2 * distance) == 0;
    const bool is_child = index % (2 * distance) == distance;
    if (is_child) step.send = Send{.to = wrap(rank - distance, size), .chunks = {0}};
    if (is_parent && index + distance < size) {
      step.receive =
          Receive{.from = wrap(rank + distance, size), .chunks = {0}, .action = Action::add};
    }
    schedule.steps.push_back(step);
  }
  return schedule;
}

}  // namespace ringside::collectives
