// One after the other, with the root at the centre of a star: what one writes first, and what
// everything else is measured against.
//
//     1   2   3
//      ╲  │  ╱        size-1 steps, and every byte passes through the root: with 64 ranks and a buffer of 100 MB, the naive
//        root         all-reduce moves 12.6 GB through one rank's link, where the ring moves 0.2 GB through each.
//
// For gather and scatter the star is no shame: the root must take in, or give out, every block
// anyhow, so that no algorithm moves fewer bytes through its link; a tree only saves steps.
//
// Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory,
// practice, and experience", Concurrency and Computation: Practice and Experience 19 (2007), pages
// 1749-1783.
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

namespace detail {

// In step s the root deals with rank root+1+s: `chunk_of(rank)` goes from that rank to the root, or
// from the root to that rank.
template <class ChunkOf>
Schedule star(int size, int rank, int root, int chunks, bool towards_root, Action action,
              ChunkOf chunk_of) {
  Schedule schedule{.chunks = chunks, .steps = {}};
  for (int s = 0; s < size - 1; ++s) {
    const int other = wrap(root + 1 + s, size);
    const int from = towards_root ? other : root;
    const int to = towards_root ? root : other;
    Step step;
    if (rank == from) step.send = Send{.to = to, .chunks = {chunk_of(other)}};
    if (rank == to)
      step.receive = Receive{.from = from, .chunks = {chunk_of(other)}, .action = action};
    schedule.steps.push_back(step);
  }
  return schedule;
}

}  // namespace detail

// Afterwards the root holds the sum of all ranks' buffers.
//
//     size 4, root 0: it holds     0, 0+1, 0+1+2, 0+1+2+3
inline Schedule linear_reduce(int size, int rank, int root) {
  return detail::star(size, rank, root, 1, true, Action::add, [](int) { return 0; });
}

// Afterwards every rank holds the root's buffer.
inline Schedule linear_broadcast(int size, int rank, int root) {
  return detail::star(size, rank, root, 1, false, Action::overwrite, [](int) { return 0; });
}

// Afterwards the root holds chunk c of rank c, for every c.
//
//     size 4, root 1               chunk 0     chunk 1     chunk 2     chunk 3
//     at the start                 .           1           .           .
//     step 0, from rank 2          .           1           [2]         .
//     step 1, from rank 3          .           1           2           [3]
//     step 2, from rank 0          [0]         1           2           3
inline Schedule linear_gather(int size, int rank, int root) {
  return detail::star(size, rank, root, size, true, Action::overwrite,
                      [](int other) { return other; });
}

// Afterwards rank r holds chunk r of the root's buffer: the gather, read backwards.
inline Schedule linear_scatter(int size, int rank, int root) {
  return detail::star(size, rank, root, size, false, Action::overwrite,
                      [](int other) { return other; });
}

// Afterwards every rank holds the sum of all ranks' buffers: all to rank 0, and back. The
// cautionary tale.
inline Schedule naive_all_reduce(int size, int rank) {
  Schedule schedule = linear_reduce(size, rank, 0);
  for (const Step& step : linear_broadcast(size, rank, 0).steps) schedule.steps.push_back(step);
  return schedule;
}

}  // namespace ringside::collectives
