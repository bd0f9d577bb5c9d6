// The dissemination barrier: nobody leaves before everybody has come, in ceil(log2(size)) steps
// without a centre.
//
// In the step of distance d every rank tells rank+d that it is there, and with it all that it has
// heard so far; so what a rank knows doubles with each step. The messages carry no payload: that
// they came is the news.
//
//     size 5, rank 0 has heard from       0
//     after d = 1 (from rank 4)           0         4
//     after d = 2 (from rank 3)           0     2 3 4
//     after d = 4 (from rank 1)           0 1 2 3 4       (1 had heard from 0, 4, 3 and 2: some of it twice, which does no harm)
//
// Source: Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", International
// Journal of Parallel Programming 17 (1988), pages 1-17. It works for every size, not only for
// powers of two.
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

inline Schedule dissemination_barrier(int size, int rank) {
  constexpr ChunkRange nothing{.first = 0, .count = 0};

  Schedule schedule{.chunks = 1, .steps = {}};
  for (int distance = 1; distance < size; distance *= 2) {
    schedule.steps.push_back(Step{
        .send = Send{.to = wrap(rank + distance, size), .chunks = nothing},
        .receive = Receive{.from = wrap(rank - distance, size),
                           .chunks = nothing,
                           .action = Action::overwrite},
    });
  }
  return schedule;
}

}  // namespace ringside::collectives
