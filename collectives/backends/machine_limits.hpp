// The machine's limits, as backends that only move as many bytes as a collective must move: without
// headers, arithmetic or checks. Input and output have the size of an all_reduce's; the contents of
// the output are meaningless.
//
//   bare ring    for TCP: every rank sends to its neighbour as many bytes as the collective's ring
//                does, and forwards bytes as soon as they arrive. The sockets have our options. One
//                thread, poll(2).
//   bare copy    for shared memory: every rank copies as many bytes as it would receive; all ranks
//                copy at the same time and wait for the last.
#pragma once

#include <barrier>
#include <memory>

#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/execution/backend.hpp"

namespace ringside::collectives {

std::unique_ptr<Backend> make_bare_ring(const RankInfo& rank_info);
std::unique_ptr<Backend> make_bare_copy(int rank, int size, std::barrier<>& barrier);

}  // namespace ringside::collectives
