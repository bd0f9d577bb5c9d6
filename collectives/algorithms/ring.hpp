// The ring: every rank sends to its right neighbour and receives from its left one, and no link is
// ever idle.
//
//     ┌──▶ 0 ──▶ 1 ──▶ 2 ──▶ 3 ──┐        send to rank+1, receive from rank-1, both modulo size
//     └──────────────────────────┘
//
// Over a whole all-reduce each rank sends 2 (size-1) chunks of 1/size of the buffer: for many ranks
// not quite twice the buffer, however many they are, and no algorithm can send less. The price is 2
// (size-1) steps, one after the other, which makes the ring the choice for long buffers.
//
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", Journal of Parallel and Distributed Computing 69 (2009), pages 117-124, which also
// proves the bound. The chunks are counted here such that rank r ends the reduce-scatter with chunk
// r, so that the halves are collectives of their own.
//
// In the tables below a cell names the ranks whose contributions it holds, [ ] what has just
// arrived.
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// Afterwards chunk r on rank r holds the sum of all ranks' chunk r; the other chunks hold sums half
// done, of use to nobody. A chunk sets out from the right neighbour of its owner and goes once
// round the ring; each rank adds its own part to it.
//
//               chunk 0     chunk 1     chunk 2     chunk 3
//     step 0
//     rank 0    0           0           [0+3]       0             sends chunk 3 to rank 1
//     rank 1    1           1           1           [0+1]         sends chunk 0 to rank 2
//     rank 2    [1+2]       2           2           2             sends chunk 1 to rank 3
//     rank 3    3           [2+3]       3           3             sends chunk 2 to rank 0
//     step 1
//     rank 0    0           [0+2+3]     0+3         0             sends chunk 2 to rank 1
//     rank 1    1           1           [0+1+3]     0+1           sends chunk 3 to rank 2
//     rank 2    1+2         2           2           [0+1+2]       sends chunk 0 to rank 3
//     rank 3    [1+2+3]     2+3         3           3             sends chunk 1 to rank 0
//     step 2
//     rank 0    [0+1+2+3]   0+2+3       0+3         0             sends chunk 1 to rank 1
//     rank 1    1           [0+1+2+3]   0+1+3       0+1           sends chunk 2 to rank 2
//     rank 2    1+2         2           [0+1+2+3]   0+1+2         sends chunk 3 to rank 3
//     rank 3    1+2+3       2+3         3           [0+1+2+3]     sends chunk 0 to rank 0
inline Schedule ring_reduce_scatter(int size, int rank) {
  const int right = wrap(rank + 1, size);
  const int left = wrap(rank - 1, size);

  Schedule schedule{.chunks = size, .steps = {}};
  for (int s = 0; s < size - 1; ++s) {
    const int outgoing = wrap(
        rank - 1 - s, size);  // what came in a step ago; at first the chunk of the left neighbour
    const int incoming =
        wrap(rank - 2 - s, size);  // in the last step, s = size-2, this is the rank's own
    schedule.steps.push_back(Step{
        .send = Send{.to = right, .chunks = {outgoing}},
        .receive = Receive{.from = left, .chunks = {incoming}, .action = Action::add},
    });
  }
  return schedule;
}

// Before, chunk r on rank r is what rank r has to give; afterwards every rank holds every chunk. A
// chunk sets out from its owner and goes once round the ring; each rank keeps a copy. (Whatever
// lies in the other chunks before is overwritten: drawn as a dot.)
//
//               chunk 0     chunk 1     chunk 2     chunk 3
//     step 0
//     rank 0    0           .           .           [3]           sends chunk 0 to rank 1
//     rank 1    [0]         1           .           .             sends chunk 1 to rank 2
//     rank 2    .           [1]         2           .             sends chunk 2 to rank 3
//     rank 3    .           .           [2]         3             sends chunk 3 to rank 0
//     step 1
//     rank 0    0           .           [2]         3             sends chunk 3 to rank 1
//     rank 1    0           1           .           [3]           sends chunk 0 to rank 2
//     rank 2    [0]         1           2           .             sends chunk 1 to rank 3
//     rank 3    .           [1]         2           3             sends chunk 2 to rank 0
//     step 2
//     rank 0    0           [1]         2           3             sends chunk 2 to rank 1
//     rank 1    0           1           [2]         3             sends chunk 3 to rank 2
//     rank 2    0           1           2           [3]           sends chunk 0 to rank 3
//     rank 3    [0]         1           2           3             sends chunk 1 to rank 0
inline Schedule ring_all_gather(int size, int rank) {
  const int right = wrap(rank + 1, size);
  const int left = wrap(rank - 1, size);

  Schedule schedule{.chunks = size, .steps = {}};
  for (int s = 0; s < size - 1; ++s) {
    const int outgoing =
        wrap(rank - s, size);  // at first the rank's own, then what came in a step ago
    const int incoming = wrap(rank - 1 - s, size);
    schedule.steps.push_back(Step{
        .send = Send{.to = right, .chunks = {outgoing}},
        .receive = Receive{.from = left, .chunks = {incoming}, .action = Action::overwrite},
    });
  }
  return schedule;
}

// Afterwards every rank holds the sum of all ranks' buffers. The reduce-scatter leaves finished
// chunk r on rank r, and that is just what the all-gather starts from.
inline Schedule ring_all_reduce(int size, int rank) {
  Schedule schedule = ring_reduce_scatter(size, rank);
  for (const Step& step : ring_all_gather(size, rank).steps) schedule.steps.push_back(step);
  return schedule;
}

}  // namespace ringside::collectives
