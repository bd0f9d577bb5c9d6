// Bruck's algorithms: messages in ceil(log2(size)) steps for any number of ranks, and no rank is
// left over.
//
// THE ALL-GATHER. In the step of distance d every rank sends all that it has to rank+d, so what a
// rank has doubles. A rank has its own chunk and those of its left neighbours: a circular range. In
// the last step it sends only what is still missing.
//
//     size 5, what rank 0 holds       chunk 0  1  2  3  4
//     after d = 1 (from rank 4)             0           4
//     after d = 2 (from rank 3)             0     2  3  4
//     after d = 4 (from rank 1)             0  1  2  3  4       chunk 1 alone
//
// THE ALL-TO-ALL. A block from rank s to rank t must go e = s - t (modulo size) ranks to the left.
// It goes the distance 1 if e is odd, then 2 if that bit of e is set, then 4, ...: in each of
// ceil(log2(size)) steps a rank sends all blocks with that bit in one message, half of what it
// holds. So a block is sent up to log2(size) times, where pairwise sends it once: for short
// blocks, whose time is that of the messages.
//
// A rank r keeps the block with e left to go, or gone, as chunk r+e. At the source that is another
// chunk than that of the block's target, r-e, so first every rank copies its input. At the target
// it is the right one: r+e is the source. Nothing is copied at the end.
//
//     size 4, rank 0         chunk 0        1        2        3      (r.c is chunk c of rank r)
//     the input                    0.0      0.1      0.2      0.3
//     copied: chunk e from -e      0.0      0.3      0.2      0.1
//     distance 1, e = 1 and 3      0.0      1.0      0.2      1.2    from rank 1
//     distance 2, e = 2 and 3      0.0      1.0      2.0      3.0    from rank 2
//
// Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
// communications in multiport message-passing systems", IEEE Transactions on Parallel and
// Distributed Systems 8 (1997), pages 1143-1156, sections 4 (all-gather) and 3 (all-to-all);
// that one copy is enough: Träff, Rougier and Hunold, "Implementing a classic: zero-copy all-to-all
// communication with MPI datatypes", ICS 2014, pages 135-144.
#pragma once

#include <algorithm>

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// Afterwards every rank holds chunk c of rank c, for every c.
inline Schedule bruck_all_gather(int size, int rank) {
  Schedule schedule{.chunks = size, .steps = {}};
  for (int distance = 1; distance < size; distance *= 2) {
    const int count = std::min(distance, size - distance);
    const int from = wrap(rank - distance, size);
    schedule.steps.push_back(Step{
        .send = Send{.to = wrap(rank + distance, size), .chunks = circular(rank, count, -1, size)},
        .receive = Receive{.from = from,
                           .chunks = circular(from, count, -1, size),
                           .action = Action::overwrite},
    });
  }
  return schedule;
}

// Afterwards chunk c on rank r is chunk r of rank c's input.
inline Schedule bruck_all_to_all(int size, int rank) {
  Schedule schedule{.chunks = size, .steps = {}};
  for (int e = 1; e < size; ++e)
    schedule.steps.push_back(Step{
        .send = Send{.to = rank, .chunks = {wrap(rank + e, size)}, .input = wrap(rank - e, size)},
        .receive =
            Receive{.from = rank, .chunks = {wrap(rank + e, size)}, .action = Action::overwrite},
    });
  for (int distance = 1; distance < size; distance *= 2) {
    int count = 0;  // of the numbers below size with that bit: runs distance .. 2 distance - 1, ...
    for (int e = distance; e < size; ++e) count += (e & distance) != 0 ? 1 : 0;
    const auto chunks_of = [&](int r) {
      return circular(r + distance, count, 2 * distance, size, distance);
    };
    const int to = wrap(rank - distance, size);
    schedule.steps.push_back(Step{
        .send = Send{.to = to, .chunks = chunks_of(to), .held = chunks_of(rank).first},
        .receive = Receive{.from = wrap(rank + distance, size),
                           .chunks = chunks_of(rank),
                           .action = Action::overwrite},
    });
  }
  return schedule;
}

}  // namespace ringside::collectives
