// One allocation of a rank that the other ranks of its host can reach: the memory behind cuda_ipc.
//
// CUDA shares whole allocations, and small ones lie together with others': so an arena is a
// multiple of 2 MiB, and its handle names the base of the allocation and how far into it the arena
// begins. A process may not open its own handle: of itself a rank has the raw pointer. Peers must
// have closed an arena before its owner frees it: so a rank destroys its Neighbours, then all meet,
// then its Arena.
#pragma once

#include <vector>

#include <cuda_runtime_api.h>

#include "collectives/process_group.hpp"

namespace ringside::collectives::cuda {

class Arena {
 public:
  static constexpr std::size_t granularity = std::size_t(2) << 20;

  // At least `bytes`, rounded up, of the calling thread's device.
  explicit Arena(std::size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

// All ranks' arenas and events, as this rank sees them. An event says "rank r's stream has come to
// here" to streams of other processes; it means what its owner has recorded before the waiter is
// told to wait, so the host orders the two (ipc.cpp).
class Neighbours {
 public:
  // Collective over `meeting`, whose ranks are processes of one host. `mine` and `events` are this
  // rank's; the events must be interprocess. Throws Error where this rank cannot reach another's
  // memory; the others hear of it in the next call over `meeting`.
  Neighbours(ProcessGroup& meeting, const Arena& mine, const std::vector<cudaEvent_t>& events);
  ~Neighbours();
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

  std::byte* arena(int rank) const { return ranks_[static_cast<std::size_t>(rank)].arena; }
  cudaEvent_t event(int rank, int which) const {
    return ranks_[static_cast<std::size_t>(rank)].events[static_cast<std::size_t>(which)];
  }

 private:
  struct Rank {
    void* opened = nullptr;  // what is to be closed; nothing of the own rank
    std::byte* arena = nullptr;
    std::vector<cudaEvent_t> events;
  };
  void open(Rank& rank, const struct Offer& offer, std::size_t events, int number);
  void close() noexcept;

  int self_;
  std::vector<Rank> ranks_;
};

}  // namespace ringside::collectives::cuda
