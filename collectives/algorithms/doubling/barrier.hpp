// The dissemination barrier: no rank leaves before every rank has entered. It takes
// ceil(log2(size)) steps, for any size, and no rank is the centre.
//
// In the step of distance d every rank sends an empty message to rank+d. A rank sends only after it
// has received the messages of the steps before. So a message says: "I am here, and so are all that
// I have heard from", and what a rank knows doubles with each step.
//
//     size 5, rank 0 has heard from       0
//     after d = 1 (from rank 4)           0         4
//     after d = 2 (from rank 3)           0     2 3 4       rank 3 had heard from 2
//     after d = 4 (from rank 1)           0 1 2 3 4         rank 1 had heard from 0, 4 and 3
//
// Source: Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", International
// Journal of Parallel Programming 17 (1988), pages 1-17.
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
