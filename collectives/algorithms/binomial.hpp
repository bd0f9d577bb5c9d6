// Binomial trees: ceil(log2(size)) steps with the whole buffer in each, for short messages and for
// what has a root.
//
// The tree is drawn for the root as number 0; for another root every rank counts from there
// ("place" = rank - root). In a step of distance d, places 0, 2d, 4d, ... are the parents and place
// p+d is the child of p:
//
//     place    0      1      2      3      4      5      6      7
//     d = 4    ●━━━━━━━━━━━━━━━━━━━━━━━━━━━●
//     d = 2    ●━━━━━━━━━━━━━●             ●━━━━━━━━━━━━━●
//     d = 1    ●━━━━━━●      ●━━━━━━●      ●━━━━━━●      ●━━━━━━●
//
// A broadcast reads it downwards, parents to children; a reduce upwards, children to parents. Where
// the size is no power of two the children beyond the end are left out, and their parents idle in
// that step.
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
  const int place = wrap(rank - root, size);
  int top = 1;
  while (top < size) top *= 2;

  Schedule schedule{.chunks = 1, .steps = {}};
  for (int distance = top / 2; distance >= 1; distance /= 2) {
    Step step;
    const bool is_parent = place % (2 * distance) == 0;
    const bool is_child = place % (2 * distance) == distance;
    if (is_parent && place + distance < size)
      step.send = Send{.to = wrap(rank + distance, size), .chunks = {0}};
    if (is_child)
      step.receive =
          Receive{.from = wrap(rank - distance, size), .chunks = {0}, .action = Action::overwrite};
    schedule.steps.push_back(step);
  }
  return schedule;
}

// Afterwards the root holds the sum of all ranks' buffers; the others hold sums half done, of use
// to nobody.
//
// Size 8, root 0: what they hold       0    1    2    3    4    5    6    7
//     after d = 1                      01        23        45        67
//     after d = 2                      0123                4567
//     after d = 4                      01234567
inline Schedule binomial_reduce(int size, int rank, int root) {
  const int place = wrap(rank - root, size);

  Schedule schedule{.chunks = 1, .steps = {}};
  for (int distance = 1; distance < size; distance *= 2) {
    Step step;
    const bool is_parent = place % (2 * distance) == 0;
    const bool is_child = place % (2 * distance) == distance;
    if (is_child) step.send = Send{.to = wrap(rank - distance, size), .chunks = {0}};
    if (is_parent && place + distance < size) {
      step.receive =
          Receive{.from = wrap(rank + distance, size), .chunks = {0}, .action = Action::add};
    }
    schedule.steps.push_back(step);
  }
  return schedule;
}

}  // namespace ringside::collectives
