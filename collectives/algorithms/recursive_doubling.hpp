// Recursive doubling: log2(size) steps with the whole buffer in each. For short buffers, where the
// number of steps is all that counts.
//
// In the step of distance d, each rank exchanges all it has with the one d away, and both add. What
// a rank holds is the sum over twice as many ranks after each step; within such a group all hold
// the same, to the bit, since a+b and b+a are the same number.
//
//     size 4                     rank 0      rank 1      rank 2      rank 3
//     distance 1                 [0+1]       [0+1]       [2+3]       [2+3]
//     distance 2                 [0+1+2+3]   [0+1+2+3]   [0+1+2+3]   [0+1+2+3]
//
// Where the size is no power of two, ranks are paired as in halving_doubling.hpp: the silent ones
// give their buffer away first, and get the sum at the end.
//
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", International Journal of High Performance Computing Applications 19 (2005), pages 49-66.
#pragma once

#include "collectives/algorithms/halving_doubling.hpp"
#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

inline Schedule recursive_doubling_all_reduce(int size, int rank) {
  const detail::Parties parties(size);
  Schedule schedule{.chunks = 1, .steps = {}};
  detail::fold_in(schedule, parties, rank, {0}, Action::add);
  for (int distance = 1; distance < parties.count; distance *= 2) {
    Step step;
    if (parties.speaks(rank)) {
      const int other = parties.speaker(parties.party_of(rank) ^ distance);
      step.send = Send{.to = other, .chunks = {0}};
      step.receive = Receive{.from = other, .chunks = {0}, .action = Action::add};
    }
    schedule.steps.push_back(step);
  }
  detail::fold_out(schedule, parties, rank, {0});
  return schedule;
}

}  // namespace ringside::collectives
