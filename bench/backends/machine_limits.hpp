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

#include <atomic>
#include <memory>

#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/execution/backend.hpp"

namespace ringside::cli {

std::unique_ptr<collectives::Backend> make_bare_ring(const collectives::RankInfo& rank_info);

// Where the ranks of a bare copy wait for the last. They poll, as ranks over shared memory do:
// std::barrier sleeps, and then waking up takes longer than short copies.
class PollingBarrier {
 public:
  explicit PollingBarrier(int ranks) : ranks_(ranks) {}
  void arrive_and_wait();

 private:
  const int ranks_;
  std::atomic<int> arrived_{0}, rounds_{0};
};

std::unique_ptr<collectives::Backend> make_bare_copy(int rank, int size, PollingBarrier& barrier);

}  // namespace ringside::cli
