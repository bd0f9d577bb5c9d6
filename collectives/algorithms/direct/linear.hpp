// Linear: the root talks to every other rank, one after the other. The first algorithm that comes
// to mind, and the baseline for all others.
//
//     1   2   3
//      ╲  │  ╱        size-1 steps, and every byte passes through the root. With 64 ranks and
//        root         100 MB the naive all-reduce moves 12.6 GB through one rank's link; the ring
//                     moves 0.2 GB through each link.
//
// For gather and scatter it is a good choice: the root has to receive, or send, every block anyway,
// so no algorithm moves fewer bytes through its link. A tree only saves steps.
//
// Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory,
// practice, and experience", Concurrency and Computation: Practice and Experience 19 (2007), pages
// 1749-1783.
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// Afterwards the root holds the sum of all ranks' buffers.
//
//     size 4, root 0       rank 0
//     step 0               [0+1]             rank 1 sends
//     step 1               [0+1+2]           rank 2 sends
//     step 2               [0+1+2+3]         rank 3 sends
inline Schedule linear_reduce(int size, int rank, int root) {
  Schedule schedule{.chunks = 1, .steps = {}};
  for (int s = 0; s < size - 1; ++s) {
    const int other = wrap(root + 1 + s, size);
    Step step;
    if (rank == other) step.send = Send{.to = root, .chunks = {0}};
    if (rank == root) step.receive = Receive{.from = other, .chunks = {0}, .action = Action::add};
    schedule.steps.push_back(step);
  }
  return schedule;
}

// Afterwards every rank holds the root's buffer.
inline Schedule linear_broadcast(int size, int rank, int root) {
  Schedule schedule{.chunks = 1, .steps = {}};
  for (int s = 0; s < size - 1; ++s) {
    const int other = wrap(root + 1 + s, size);
    Step step;
    if (rank == root) step.send = Send{.to = other, .chunks = {0}};
    if (rank == other)
      step.receive = Receive{.from = root, .chunks = {0}, .action = Action::overwrite};
    schedule.steps.push_back(step);
  }
  return schedule;
}

// Afterwards the root holds chunk c of rank c, for every c.
//
//     size 4, root 1               chunk 0     chunk 1     chunk 2     chunk 3
//     at the start                 .           1           .           .
//     step 0, from rank 2          .           1           [2]         .
//     step 1, from rank 3          .           1           2           [3]
//     step 2, from rank 0          [0]         1           2           3
inline Schedule linear_gather(int size, int rank, int root) {
  Schedule schedule{.chunks = size, .steps = {}};
  for (int s = 0; s < size - 1; ++s) {
    const int other = wrap(root + 1 + s, size);
    Step step;
    if (rank == other) step.send = Send{.to = root, .chunks = {other}};
    if (rank == root)
      step.receive = Receive{.from = other, .chunks = {other}, .action = Action::overwrite};
    schedule.steps.push_back(step);
  }
  return schedule;
}

// Afterwards rank r holds chunk r of the root's buffer: the gather in reverse.
inline Schedule linear_scatter(int size, int rank, int root) {
  Schedule schedule{.chunks = size, .steps = {}};
  for (int s = 0; s < size - 1; ++s) {
    const int other = wrap(root + 1 + s, size);
    Step step;
    if (rank == root) step.send = Send{.to = other, .chunks = {other}};
    if (rank == other)
      step.receive = Receive{.from = root, .chunks = {other}, .action = Action::overwrite};
    schedule.steps.push_back(step);
  }
  return schedule;
}

// Afterwards every rank holds the sum of all ranks' buffers: a reduce to rank 0, then a broadcast.
// It shows why the others exist.
inline Schedule naive_all_reduce(int size, int rank) {
  Schedule schedule = linear_reduce(size, rank, 0);
  for (const Step& step : linear_broadcast(size, rank, 0).steps) schedule.steps.push_back(step);
  return schedule;
}

}  // namespace ringside::collectives
