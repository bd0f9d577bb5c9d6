// GPU memory of one rank that the other ranks of its host can access: the memory behind cuda_ipc.
//
// CUDA shares whole allocations and packs small ones together. So the size of an arena is a
// multiple of 2 MiB, and the handle that peers get names the base of the allocation and the arena's
// offset in it. A process cannot open its own handle; for itself a rank uses the plain pointer.
#pragma once

#include <vector>

#include <cuda_runtime_api.h>

#include "collectives/cuda/device.hpp"
#include "collectives/cuda/ipc/rank.hpp"

namespace ringside::collectives::cuda {

constexpr std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}
constexpr std::size_t whole_lines(std::size_t bytes) {
  return rounded_up(bytes, 128);
}

// An arena and those of all other ranks, with their events, as addresses and handles of this
// process. An event tells the streams of other processes that its owner's stream has reached a
// point. A stream that waits for an event waits for the latest record at that time, so the hosts
// must order record and wait (copies.cpp).
class SharedArena {
 public:
  // A collective call over rank.group. The first `zeros` bytes are zero before any rank uses them.
  // `events` are interprocess events of this rank, which destroys them itself. Throws Error if this
  // rank cannot access the memory of another; the others' next call over the group then fails.
  SharedArena(IpcRank& rank, std::size_t bytes, std::size_t zeros,
              const std::vector<cudaEvent_t>& events);

  // A collective call, too: peers must close an arena before its owner frees it.
  ~SharedArena();

  std::byte* of(int rank) const { return neighbours_[rank].arena; }
  cudaEvent_t event(int rank, int which) const { return neighbours_[rank].events[which]; }

 private:
  struct Neighbour {
    void* opened = nullptr;  // to be closed; nullptr for this rank itself
    std::byte* arena = nullptr;
    std::vector<cudaEvent_t> events;
  };
  void open(int rank, const struct Offer& offer, std::size_t events);
  void close() noexcept;

  IpcRank& rank_;
  DeviceBuffer memory_;
  std::vector<Neighbour> neighbours_;  // [rank]
};

}  // namespace ringside::collectives::cuda
