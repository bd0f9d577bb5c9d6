// GPU memory of one rank that the other ranks of its host can access: the memory behind cuda_ipc.
//
// CUDA shares whole allocations and packs small ones together. So the size of an arena is a
// multiple of 2 MiB, and the handle that peers get names the base of the allocation and the arena's
// offset in it. A process cannot open its own handle; for itself a rank uses the plain pointer.
// Peers must close an arena before its owner frees it. So each rank destroys its Neighbours, then
// all ranks enter a barrier, then each destroys its Arena.
#pragma once

#include <vector>

#include <cuda_runtime_api.h>

namespace ringside::collectives {
class ProcessGroup;
}

namespace ringside::collectives::cuda {

class Arena {
 public:
  static constexpr std::size_t granularity = std::size_t(2) << 20;

  // At least `bytes` of the calling thread's device, rounded up to the granularity.
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

// The arenas and events of all ranks, as addresses and handles of this process. An event tells the
// streams of other processes that its owner's stream has reached a point. A stream that waits for
// an event waits for the latest record at that time, so the hosts must order record and wait
// (ipc.cpp).
class Neighbours {
 public:
  // A collective call over `meeting`, whose ranks are processes of one host. `mine` and `events`
  // belong to this rank; the events must be interprocess events. Throws Error if this rank cannot
  // access the memory of another; the others' next call over `meeting` then fails.
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
    void* opened = nullptr;  // to be closed; nullptr for this rank itself
    std::byte* arena = nullptr;
    std::vector<cudaEvent_t> events;
  };
  void open(Rank& rank, const struct Offer& offer, std::size_t events, int number);
  void close() noexcept;

  int self_;
  std::vector<Rank> ranks_;
};

}  // namespace ringside::collectives::cuda
