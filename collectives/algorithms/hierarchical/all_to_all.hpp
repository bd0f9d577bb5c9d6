// The all-to-all in two levels: inside each host, then across. For hosts whose ranks reach each
// other faster than ranks of other hosts, and blocks that are short.
//
// Ranks form a grid, as in hierarchical.hpp: a row is a host, a column has one rank of each host.
//
//     4 ranks     host 0    rank 0   rank 1     1. in each row: a rank gives each other rank its
//                 host 1    rank 2   rank 3        blocks for that rank's column
//                                               2. in each column: a rank gives each other rank
//                                                  the blocks of its whole row for that rank
//
//     rank 0's chunks (r.c is chunk c of rank r)    0      1      2      3
//     the input                                     0.0    0.1    0.2    0.3
//     1. from rank 1: its blocks for column 0       0.0    1.0    0.2    1.2
//     2. from rank 2: its row's blocks for rank 0   0.0    1.0    2.0    3.0
//
// A block is sent at most twice, where pairwise sends it once. But with g ranks on each of h hosts
// a rank sends g-1 + h-1 messages, where pairwise sends g h - 1; and a host sends each other host g
// messages of g blocks, where pairwise sends g g messages of one block.
//
// Source: Hwang et al., "Tutel: adaptive mixture-of-experts at scale", MLSys 2023, section 3 (2DH
// all-to-all).
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// Afterwards chunk c on rank r is chunk r of rank c's input. `per_host` must divide `size`; ranks
// h per_host .. (h+1) per_host - 1 are those of host h.
inline Schedule hierarchical_all_to_all_of(int size, int rank, int per_host) {
  const int hosts = size / per_host, host = rank / per_host, index = rank % per_host;
  Schedule schedule{.chunks = size, .steps = {}};
  if (size == 1) return schedule;

  // In step s of a level the ranks whose numbers there add up to s (modulo its size) exchange.
  for (int s = 0; s < per_host; ++s) {
    const int other = wrap(s - index, per_host), peer = host * per_host + other;
    const auto blocks_of = [&](int i) { return circular(i, hosts, per_host, size); };
    Step step;
    if (peer != rank) {
      step.send = Send{.to = peer, .chunks = blocks_of(index), .input = other};
      step.receive = Receive{.from = peer, .chunks = blocks_of(other), .action = Action::overwrite};
    }
    schedule.steps.push_back(step);
  }
  for (int s = 0; s < hosts; ++s) {
    const int other = wrap(s - host, hosts), peer = other * per_host + index;
    const auto row_of = [&](int h) { return ChunkRange{h * per_host, per_host}; };
    Step step;
    if (peer != rank) {
      step.send = Send{.to = peer, .chunks = row_of(host), .held = row_of(other).first};
      step.receive = Receive{.from = peer, .chunks = row_of(other), .action = Action::overwrite};
    }
    schedule.steps.push_back(step);
  }
  return schedule;
}

}  // namespace ringside::collectives
