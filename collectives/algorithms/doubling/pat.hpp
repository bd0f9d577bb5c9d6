// PAT, parallel aggregated trees: NCCL's all-gather and reduce-scatter since 2.23, for any number
// of ranks.
//
// Every chunk travels down a binomial tree of its own, all of which are alike: the chunk of rank r
// reaches rank r+t from rank r+t-d, where d is the lowest set bit of t. The far distances come
// first, while messages are short, so that most bytes take the short ways. (Bruck's all-gather is
// the other way round: its longest messages go farthest.)
//
//     size 8, chunk 0           rank  0  1  2  3  4  5  6  7       every rank sends
//     step 0, distance 4              0 ─────────▶ 4               1 chunk
//     step 1, distance 2              0 ───▶ 2     4 ───▶ 6        2 chunks, of ranks r and r-4
//     step 2, distance 1              0▶1    2▶3   4▶5    6▶7      4 chunks
//
// AGGREGATION: at most `most_chunks` chunks travel in a message, a power of two. If that is less
// than half of all, the first steps go on until each chunk is on that many ranks. From there its
// trees are walked in parallel, each depth first, one edge in a step. That takes log2(most) +
// size/most - 1 steps instead of log2(size), down to the size-1 steps of a ring at most_chunks = 1,
// and a rank of a reduce-scatter never holds more than log2(size/most) messages of partial sums:
// that is what NCCL's buffers have room for.
//
// Source: Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale",
// arXiv 2506.20252 (2025).
#pragma once

#include "collectives/algorithms/reversed.hpp"
#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// Afterwards every rank holds chunk c of rank c, for every c.
inline Schedule pat_all_gather_of(int size, int rank, int most_chunks) {
  int reach = 1;  // a power of two that is not below size
  while (reach < size) reach *= 2;
  int trees = 1;  // walked in parallel
  while (2 * trees <= most_chunks && 2 * trees < reach) trees *= 2;
  const int span = reach / trees;  // how many ranks each of them reaches

  Schedule schedule{.chunks = size, .steps = {}};
  // Each chunk goes from the ranks that are start, start+apart, start+2 apart, ... to the right of
  // its owner `distance` farther, but not round the ring.
  const auto add_step = [&](int start, int apart, int distance) {
    if (start + distance >= size) return;
    const int count = (size - 1 - start - distance) / apart + 1;
    const int from = wrap(rank - distance, size);
    schedule.steps.push_back(Step{
        .send = Send{.to = wrap(rank + distance, size),
                     .chunks = circular(rank - start, count, -apart, size)},
        .receive = Receive{.from = from,
                           .chunks = circular(from - start, count, -apart, size),
                           .action = Action::overwrite},
    });
  };
  for (int distance = reach / 2; distance >= span; distance /= 2)
    add_step(0, 2 * distance, distance);
  for (int t = 1; t < span; ++t) {
    const int distance = t & -t;
    add_step(t - distance, span, distance);
  }
  return schedule;
}

// With messages of any length.
inline Schedule pat_all_gather(int size, int rank) {
  return pat_all_gather_of(size, rank, size);
}

// Afterwards chunk r on rank r holds the sum of all ranks' chunk r: the all-gather in reverse.
inline Schedule pat_reduce_scatter(int size, int rank) {
  return reversed(pat_all_gather(size, rank), Action::add);
}

}  // namespace ringside::collectives
