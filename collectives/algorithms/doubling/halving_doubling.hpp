// Halving and doubling: as few bytes as the ring, in 2 log2(size) steps instead of 2 (size-1). For
// buffers of medium length.
//
// HALVING is a reduce-scatter. In each step two ranks divide the chunks that both still add up:
// each keeps one half, sends the other half, and adds what it receives. DOUBLING is an all-gather,
// the way back: in each step a rank sends all that it has, and has twice as much afterwards.
//
//     size 4      chunk 0      chunk 1      chunk 2      chunk 3
//     halving, distance 2
//     rank 0      [0+2]        [0+2]        0            0              sends chunks 2 and 3
//     rank 1      [1+3]        [1+3]        1            1              sends chunks 2 and 3
//     rank 2      2            2            [0+2]        [0+2]          sends chunks 0 and 1
//     rank 3      3            3            [1+3]        [1+3]          sends chunks 0 and 1
//     halving, distance 1
//     rank 0      [0+1+2+3]    0+2          0            0              sends chunk 1
//     rank 1      1+3          [0+1+2+3]    1            1              sends chunk 0
//     rank 2      2            2            [0+1+2+3]    0+2            sends chunk 3
//     rank 3      3            3            1+3          [0+1+2+3]      sends chunk 2
//     doubling, distance 1
//     rank 0      0+1+2+3      [0+1+2+3]    0            0              sends chunk 0
//     and so on, back to the top
//
// Where the size is not a power of two, the ranks form parties: folding.hpp. "Distance" counts
// parties.
//
// Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004, LNCS 3036,
// pages 1-9; Thakur, Rabenseifner and Gropp (2005), see folding.hpp.
#pragma once

#include <cstddef>

#include "collectives/algorithms/doubling/folding.hpp"
#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// Afterwards chunk r on rank r holds the sum of all ranks' chunk r.
inline Schedule halving_reduce_scatter(int size, int rank) {
  const Parties parties(size);
  const int party = parties.party_of(rank);

  Schedule schedule{.chunks = size, .steps = {}};
  fold_in(schedule, parties, rank, {0, size}, Action::add);
  for (int distance = parties.count / 2; distance >= 1; distance /= 2) {
    Step step;
    if (parties.is_representative(rank)) {
      const int other = party ^ distance;
      const int my_half = party / distance * distance;  // the first party of each half
      const int other_half = other / distance * distance;
      step.send =
          Send{.to = parties.representative(other), .chunks = parties.ranks(other_half, distance)};
      step.receive = Receive{.from = parties.representative(other),
                             .chunks = parties.ranks(my_half, distance),
                             .action = Action::add};
    }
    schedule.steps.push_back(step);
  }
  fold_out(schedule, parties, rank, {parties.right_of_pair(rank)});
  return schedule;
}

// Afterwards every rank holds chunk c of rank c, for every c.
inline Schedule doubling_all_gather(int size, int rank) {
  const Parties parties(size);
  const int party = parties.party_of(rank);

  Schedule schedule{.chunks = size, .steps = {}};
  fold_in(schedule, parties, rank, {parties.right_of_pair(rank)}, Action::overwrite);
  for (int distance = 1; distance < parties.count; distance *= 2) {
    Step step;
    if (parties.is_representative(rank)) {
      const int other = party ^ distance;
      const int my_half = party / distance * distance;
      const int other_half = other / distance * distance;
      step.send =
          Send{.to = parties.representative(other), .chunks = parties.ranks(my_half, distance)};
      step.receive = Receive{.from = parties.representative(other),
                             .chunks = parties.ranks(other_half, distance),
                             .action = Action::overwrite};
    }
    schedule.steps.push_back(step);
  }
  fold_out(schedule, parties, rank, {0, size});
  return schedule;
}

// Afterwards every rank holds the sum of all ranks' buffers. The reduce-scatter, then the
// all-gather, without the fold-out and the fold-in between them.
inline Schedule halving_doubling_all_reduce(int size, int rank) {
  const bool folded = Parties(size).pairs > 0;
  Schedule schedule = halving_reduce_scatter(size, rank);
  const Schedule gather = doubling_all_gather(size, rank);
  if (folded) schedule.steps.pop_back();
  for (std::size_t s = folded ? 1 : 0; s < gather.steps.size(); ++s)
    schedule.steps.push_back(gather.steps[s]);
  return schedule;
}

// Afterwards the root holds the sum of all ranks' buffers. The reduce-scatter, then a gather: a
// doubling in which only one of two parties sends, the one that is further from the root's.
inline Schedule halving_reduce(int size, int rank, int root) {
  const Parties parties(size);
  const int party = parties.party_of(rank), target = parties.party_of(root);

  Schedule schedule = halving_reduce_scatter(size, rank);
  if (parties.pairs > 0) schedule.steps.pop_back();
  for (int distance = 1; distance < parties.count; distance *= 2) {
    Step step;
    const int behind = party ^ target;  // its lowest bits are the distances that lie behind
    if (parties.is_representative(rank) && behind % distance == 0) {
      const int other = party ^ distance, peer = parties.representative(other);
      const bool sends = behind / distance % 2 == 1;
      const ChunkRange half =
          parties.ranks((sends ? party : other) / distance * distance, distance);
      if (sends)
        step.send = Send{.to = peer, .chunks = half};
      else
        step.receive = Receive{.from = peer, .chunks = half, .action = Action::overwrite};
    }
    schedule.steps.push_back(step);
  }
  if (!parties.is_representative(root)) {  // its representative holds all
    Step step;
    if (rank == root - 1) step.send = Send{.to = root, .chunks = {0, size}};
    if (rank == root)
      step.receive = Receive{.from = root - 1, .chunks = {0, size}, .action = Action::overwrite};
    schedule.steps.push_back(step);
  }
  return schedule;
}

}  // namespace ringside::collectives
