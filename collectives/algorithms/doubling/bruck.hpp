// Bruck's all-gather: ceil(log2(size)) steps for any number of ranks, and no rank is left over.
//
// In the step of distance d every rank sends all that it has to rank+d, so what a rank has doubles.
// A rank has its own chunk and those of its left neighbours: a circular range. In the last step it
// sends only what is still missing.
//
//     size 5, what rank 0 holds       chunk 0  1  2  3  4
//     after d = 1 (from rank 4)             0           4
//     after d = 2 (from rank 3)             0     2  3  4
//     after d = 4 (from rank 1)             0  1  2  3  4       chunk 1 alone
//
// Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
// communications in multiport message-passing systems", IEEE Transactions on Parallel and
// Distributed Systems 8 (1997), pages 1143-1156, section 4.
#pragma once

#include <algorithm>

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// Afterwards every rank holds chunk c of rank c, for every c.
inline Schedule bruck_all_gather(int size, int rank) {
  Schedule schedule{.chunks = size, .steps = {}};
  for (int distance = 1; distance < size; distance *= 2) {
    const int count = std::min(distance, size - distance);
    const int from = wrap(rank - distance, size);
    schedule.steps.push_back(Step{
        .send = Send{.to = wrap(rank + distance, size), .chunks = circular(rank, count, -1, size)},
        .receive = Receive{.from = from,
                           .chunks = circular(from, count, -1, size),
                           .action = Action::overwrite},
    });
  }
  return schedule;
}

}  // namespace ringside::collectives
