// The ring: every rank sends to its right neighbour and receives from its left one. No link is ever
// idle.
//
//     ┌──▶ 0 ──▶ 1 ──▶ 2 ──▶ 3 ──┐        send to rank+1, receive from rank-1, both modulo size
//     └──────────────────────────┘
//
// In an all-reduce each rank sends 2 (size-1) chunks, each 1/size of the buffer. That is less than
// twice the buffer for any number of ranks, and no algorithm sends less. It takes 2 (size-1) steps,
// one after the other, so the ring is best for long buffers.
//
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", Journal of Parallel and Distributed Computing 69 (2009), pages 117-124, which also
// proves the bound. Here rank r ends the reduce-scatter with chunk r, so that each half is a
// collective by itself.
//
// In the tables a cell names the ranks whose contributions it holds; [ ] has just arrived.
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// Afterwards chunk r on rank r holds the sum of all ranks' chunk r; the other chunks hold partial
// sums. A chunk starts at the right neighbour of its owner and goes once round the ring. Each rank
// adds its contribution.
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
    // First the left neighbour's chunk goes out, then the chunk that arrived in the step before.
    const int outgoing = wrap(rank - 1 - s, size);
    // In the last step, s = size-2, the rank's own chunk arrives.
    const int incoming = wrap(rank - 2 - s, size);
    schedule.steps.push_back(Step{
        .send = Send{.to = right, .chunks = {outgoing}},
        .receive = Receive{.from = left, .chunks = {incoming}, .action = Action::add},
    });
  }
  return schedule;
}

// Before, rank r holds chunk r; afterwards every rank holds every chunk. A chunk starts at its
// owner and goes once round the ring. Each rank keeps a copy. (A dot is a chunk with no content
// yet.)
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
    // First the rank's own chunk goes out, then the chunk that arrived in the step before.
    const int outgoing = wrap(rank - s, size);
    const int incoming = wrap(rank - 1 - s, size);
    schedule.steps.push_back(Step{
        .send = Send{.to = right, .chunks = {outgoing}},
        .receive = Receive{.from = left, .chunks = {incoming}, .action = Action::overwrite},
    });
  }
  return schedule;
}

// Afterwards every rank holds the sum of all ranks' buffers. The reduce-scatter leaves the sum of
// chunk r on rank r, and the all-gather starts from there.
inline Schedule ring_all_reduce(int size, int rank) {
  Schedule schedule = ring_reduce_scatter(size, rank);
  for (const Step& step : ring_all_gather(size, rank).steps) schedule.steps.push_back(step);
  return schedule;
}

}  // namespace ringside::collectives
