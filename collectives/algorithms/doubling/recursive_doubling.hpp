// Recursive doubling: an all-reduce in log2(size) steps, each with the whole buffer. For short
// buffers, where the number of steps is all that counts.
//
// In the step of distance d each rank exchanges all that it holds with the rank at distance d, and
// both add. After the step each rank holds the sum over twice as many ranks. The ranks that share a
// sum hold the same bits, since a+b and b+a are the same number.
//
//     size 4                     rank 0      rank 1      rank 2      rank 3
//     distance 1                 [0+1]       [0+1]       [2+3]       [2+3]
//     distance 2                 [0+1+2+3]   [0+1+2+3]   [0+1+2+3]   [0+1+2+3]
//
// Where the size is not a power of two, the ranks form parties: folding.hpp.
//
// Source: Thakur, Rabenseifner and Gropp (2005), see folding.hpp.
#pragma once

#include "collectives/algorithms/doubling/folding.hpp"
#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// Afterwards every rank holds the sum of all ranks' buffers.
inline Schedule recursive_doubling_all_reduce(int size, int rank) {
  const Parties parties(size);

  Schedule schedule{.chunks = 1, .steps = {}};
  fold_in(schedule, parties, rank, {0}, Action::add);
  for (int distance = 1; distance < parties.count; distance *= 2) {
    Step step;
    if (parties.is_representative(rank)) {
      const int other = parties.representative(parties.party_of(rank) ^ distance);
      step.send = Send{.to = other, .chunks = {0}};
      step.receive = Receive{.from = other, .chunks = {0}, .action = Action::add};
    }
    schedule.steps.push_back(step);
  }
  fold_out(schedule, parties, rank, {0});
  return schedule;
}

}  // namespace ringside::collectives
