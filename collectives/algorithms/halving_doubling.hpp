// Halving and doubling: as few bytes as the ring, in 2 log2(size) steps in place of 2 (size-1). For
// buffers of middling length.
//
// HALVING (reduce-scatter): in each step two ranks share out what they are both still adding up:
// each keeps one half, sends the other and adds what it gets. DOUBLING (all-gather) is the way
// back: each sends all that it has, and has twice as much afterwards.
//
//     size 4, what each holds of the sum       chunk 0     chunk 1     chunk 2     chunk 3
//     halving, distance 2        rank 0        [0+2]       [0+2]                               keeps the left half, sends the right
//                                rank 1        [1+3]       [1+3]
//                                rank 2                                [0+2]       [0+2]
//                                rank 3                                [1+3]       [1+3]
//     halving, distance 1        rank 0        [0+1+2+3]
//                                rank 1                    [0+1+2+3]
//                                rank 2                                [0+1+2+3]
//                                rank 3                                            [0+1+2+3]
//     doubling, distance 1       rank 0        0+1+2+3     [0+1+2+3]                           and so on, back to the top
//
// Where the size is no power of two, the first ranks pair up, so that as many parties remain as the
// greatest power of two below: the left rank of a pair speaks for both. FOLD IN: the right one
// gives it its buffer and idles; FOLD OUT: it gets back what is its own.
//
//     size 6     ranks  0 1 │ 2 3 │ 4 │ 5       parties 0, 1, 2, 3; rank 1 folds into rank 0, rank 3 into rank 2
//
// Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004, LNCS 3036,
// pages 1-9; Thakur, Rabenseifner and Gropp (2005), see binomial.hpp.
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

namespace detail {

// Who speaks for whom among `size` ranks.
struct Parties {
  int count = 1;  // the greatest power of two that is not above size
  int pairs = 0;  // the first `pairs` parties are two ranks each

  explicit Parties(int size) {
    while (2 * count <= size) count *= 2;
    pairs = size - count;
  }

  // The ranks of parties first .. first+n-1, and so also their chunks.
  ChunkRange ranks(int first, int n) const {
    const int begin = first + (first < pairs ? first : pairs);
    const int end = first + n + (first + n < pairs ? first + n : pairs);
    return {begin, end - begin};
  }
  int speaker(int party) const { return ranks(party, 1).first; }
  int party_of(int rank) const { return rank < 2 * pairs ? rank / 2 : rank - pairs; }
  bool speaks(int rank) const { return speaker(party_of(rank)) == rank; }
  bool in_pair(int rank) const { return rank < 2 * pairs; }
};

// Before the halving: the silent rank of each pair gives `chunks` to the speaker. No step where
// there are no pairs.
inline void fold_in(Schedule& schedule, const Parties& parties, int rank, ChunkRange chunks,
                    Action action) {
  if (parties.pairs == 0) return;
  Step step;
  if (parties.in_pair(rank)) {
    if (parties.speaks(rank))
      step.receive = Receive{.from = rank + 1, .chunks = chunks, .action = action};
    else
      step.send = Send{.to = rank - 1, .chunks = chunks};
  }
  schedule.steps.push_back(step);
}

// After the doubling: the speaker gives `chunks` to the silent one.
inline void fold_out(Schedule& schedule, const Parties& parties, int rank, ChunkRange chunks) {
  if (parties.pairs == 0) return;
  Step step;
  if (parties.in_pair(rank)) {
    if (parties.speaks(rank))
      step.send = Send{.to = rank + 1, .chunks = chunks};
    else
      step.receive = Receive{.from = rank - 1, .chunks = chunks, .action = Action::overwrite};
  }
  schedule.steps.push_back(step);
}

// Afterwards each party holds the sum of its own chunks. `distance` is in parties; a block of
// 2*distance of them shares out its chunks.
inline void halve(Schedule& schedule, const Parties& parties, int rank) {
  const int party = parties.party_of(rank);
  for (int distance = parties.count / 2; distance >= 1; distance /= 2) {
    Step step;
    if (parties.speaks(rank)) {
      const int other = party ^ distance;
      const int mine = party / distance * distance,
                theirs = other / distance * distance;  // where the two halves begin
      step.send = Send{.to = parties.speaker(other), .chunks = parties.ranks(theirs, distance)};
      step.receive = Receive{.from = parties.speaker(other),
                             .chunks = parties.ranks(mine, distance),
                             .action = Action::add};
    }
    schedule.steps.push_back(step);
  }
}

// The way back: before, each party has its own chunks; afterwards all have all.
inline void double_up(Schedule& schedule, const Parties& parties, int rank) {
  const int party = parties.party_of(rank);
  for (int distance = 1; distance < parties.count; distance *= 2) {
    Step step;
    if (parties.speaks(rank)) {
      const int other = party ^ distance;
      const int mine = party / distance * distance, theirs = other / distance * distance;
      step.send = Send{.to = parties.speaker(other), .chunks = parties.ranks(mine, distance)};
      step.receive = Receive{.from = parties.speaker(other),
                             .chunks = parties.ranks(theirs, distance),
                             .action = Action::overwrite};
    }
    schedule.steps.push_back(step);
  }
}

// Of a pair, the chunk that belongs to the silent rank.
inline ChunkRange silent_chunk(int rank, const Parties& parties) {
  return {parties.speaks(rank) ? rank + 1 : rank};
}

}  // namespace detail

// Afterwards chunk r on rank r holds the sum of all ranks' chunk r.
inline Schedule halving_reduce_scatter(int size, int rank) {
  const detail::Parties parties(size);
  Schedule schedule{.chunks = size, .steps = {}};
  detail::fold_in(schedule, parties, rank, {0, size}, Action::add);
  detail::halve(schedule, parties, rank);
  detail::fold_out(schedule, parties, rank, detail::silent_chunk(rank, parties));
  return schedule;
}

// Afterwards every rank holds chunk c of rank c, for every c.
inline Schedule doubling_all_gather(int size, int rank) {
  const detail::Parties parties(size);
  Schedule schedule{.chunks = size, .steps = {}};
  detail::fold_in(schedule, parties, rank, detail::silent_chunk(rank, parties), Action::overwrite);
  detail::double_up(schedule, parties, rank);
  detail::fold_out(schedule, parties, rank, {0, size});
  return schedule;
}

// Afterwards every rank holds the sum of all ranks' buffers. The two halves, but that nothing is
// folded out and in between them.
inline Schedule halving_doubling_all_reduce(int size, int rank) {
  const detail::Parties parties(size);
  Schedule schedule{.chunks = size, .steps = {}};
  detail::fold_in(schedule, parties, rank, {0, size}, Action::add);
  detail::halve(schedule, parties, rank);
  detail::double_up(schedule, parties, rank);
  detail::fold_out(schedule, parties, rank, {0, size});
  return schedule;
}

}  // namespace ringside::collectives
