// Folding: halving and doubling need a power of two of ranks; folding lets any number take part.
//
// Let P be the largest power of two that is not above size. The first size - P ranks of even number
// each form a pair with their right neighbour, so that P PARTIES remain: pairs and single ranks.
// The left rank of a pair is the REPRESENTATIVE of its party, and a single rank represents itself.
//
//     size 6     ranks  0 1 │ 2 3 │ 4 │ 5       parties 0, 1, 2, 3; representatives 0, 2, 4, 5
//
// FOLD IN: the right rank of a pair sends its data to the representative, and then idles. The
// representatives run the algorithm. FOLD OUT: the right rank receives its result.
//
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", International Journal of High Performance Computing Applications 19 (2005), pages 49-66.
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

struct Parties {
  int count = 1;  // a power of two
  int pairs = 0;  // the first `pairs` parties have two ranks each

  explicit Parties(int size) {
    while (2 * count <= size) count *= 2;
    pairs = size - count;
  }

  // The ranks of parties first .. first+n-1. Chunk r belongs to rank r, so these are also their
  // chunks.
  ChunkRange ranks(int first, int n) const {
    const int begin = first + (first < pairs ? first : pairs);
    const int end = first + n + (first + n < pairs ? first + n : pairs);
    return {begin, end - begin};
  }
  int representative(int party) const { return ranks(party, 1).first; }
  int party_of(int rank) const { return rank < 2 * pairs ? rank / 2 : rank - pairs; }
  bool is_representative(int rank) const { return representative(party_of(rank)) == rank; }
  bool in_pair(int rank) const { return rank < 2 * pairs; }
  // The right rank of the pair of `rank`.
  int right_of_pair(int rank) const { return is_representative(rank) ? rank + 1 : rank; }
};

// Adds the step in which the right rank of each pair sends `chunks` to its representative. Adds
// nothing where there are no pairs.
inline void fold_in(Schedule& schedule, const Parties& parties, int rank, ChunkRange chunks,
                    Action action) {
  if (parties.pairs == 0) return;
  Step step;
  if (parties.in_pair(rank)) {
    if (parties.is_representative(rank))
      step.receive = Receive{.from = rank + 1, .chunks = chunks, .action = action};
    else
      step.send = Send{.to = rank - 1, .chunks = chunks};
  }
  schedule.steps.push_back(step);
}

// Adds the step in which the representative of each pair sends `chunks` to the right rank.
inline void fold_out(Schedule& schedule, const Parties& parties, int rank, ChunkRange chunks) {
  if (parties.pairs == 0) return;
  Step step;
  if (parties.in_pair(rank)) {
    if (parties.is_representative(rank))
      step.send = Send{.to = rank + 1, .chunks = chunks};
    else
      step.receive = Receive{.from = rank - 1, .chunks = chunks, .action = Action::overwrite};
  }
  schedule.steps.push_back(step);
}

}  // namespace ringside::collectives
