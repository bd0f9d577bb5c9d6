// The machine's own limits, as backends that move the bytes a collective must move and do nothing
// else: no headers, no arithmetic, no checks. Input and output are as long as an all_reduce's, and
// what is left in the output means nothing.
//
//   bare ring    for TCP: every rank sends to its neighbour, over sockets set up as ours are, as many bytes as the collective's
//   ring sends,
//                and passes on what it receives as soon as it has come. One thread, poll(2).
//   bare copy    for shared memory: every rank copies as many bytes as it would receive, all at once, and all wait for the last.
#pragma once

#include <barrier>
#include <memory>

#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/execution/backend.hpp"

namespace ringside::cli {

std::unique_ptr<collectives::Backend> make_bare_ring(const collectives::RankInfo& rank_info);
std::unique_ptr<collectives::Backend> make_bare_copy(int rank, int size, std::barrier<>& everybody);

// The bytes that pass each link of the ring, as a multiple of the buffer: the factor from algbw to
// busbw of nccl-tests' PERFORMANCE.md.
double bus_factor(collectives::Collective collective, int ranks);

}  // namespace ringside::cli
