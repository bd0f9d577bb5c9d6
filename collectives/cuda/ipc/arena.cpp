#include "collectives/cuda/ipc/arena.hpp"

#include <algorithm>

#include "base/cuda.hpp"
#include "collectives/calls/values_of_all_ranks.hpp"

namespace ringside::collectives::cuda {

// What a rank tells the others, so that they can open its arena and its events.
struct Offer {
  static constexpr std::size_t most_events = 4;
  cudaIpcMemHandle_t memory{};
  std::uint64_t offset = 0;  // of the arena in its allocation
  cudaIpcEventHandle_t events[most_events] = {};
};

namespace {

constexpr std::size_t granularity = std::size_t(2) << 20;  // of CUDA's allocations

std::uint64_t offset_in_allocation(const void* pointer) {
  std::uint64_t base = 0;
  std::size_t bytes = 0;
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  const int result = driver_function<int(std::uint64_t*, std::size_t*, std::uint64_t)>(
      "cuMemGetAddressRange", 12000)(&base, &bytes, address);
  require(result == 0, "cuMemGetAddressRange failed with driver error {}", result);
  return address - base;
}

Offer offer_of(int rank, void* arena, const std::vector<cudaEvent_t>& events) {
  require(events.size() <= Offer::most_events, "a rank shares at most {} events, not {}",
          Offer::most_events, events.size());
  Offer offer;
  check_cuda(cudaIpcGetMemHandle(&offer.memory, arena),
             fmt::format("sharing the arena of rank {}", rank));
  offer.offset = offset_in_allocation(arena);
  for (std::size_t i = 0; i < events.size(); ++i)
    check_cuda(cudaIpcGetEventHandle(&offer.events[i], events[i]),
               fmt::format("sharing an event of rank {}", rank));
  return offer;
}

}  // namespace

SharedArena::SharedArena(IpcRank& rank, std::size_t bytes, std::size_t zeros,
                         const std::vector<cudaEvent_t>& events)
    : rank_(rank),
      memory_(rounded_up(std::max<std::size_t>(bytes, 1), granularity)),
      neighbours_(rank.size()) {
  try {
    check_cuda(cudaMemset(memory_.data(), 0, zeros), "clearing an arena");
    check_cuda(cudaDeviceSynchronize(), "clearing an arena");  // cudaMemset may return earlier
    const auto offers =
        values_of_all_ranks(rank.group, offer_of(rank.rank(), memory_.data(), events), "cuda_ipc");
    for (int r = 0; r < rank.size(); ++r)
      if (r != rank.rank()) open(r, offers[r], events.size());
    neighbours_[rank.rank()] = {nullptr, static_cast<std::byte*>(memory_.data()), events};
    rank.group.barrier();  // all ranks have opened all arenas
  } catch (...) {
    close();
    memory_.leak();
    throw;
  }
}

void SharedArena::open(int rank, const Offer& offer, std::size_t events) {
  Neighbour& neighbour = neighbours_[rank];
  check_cuda(cudaIpcOpenMemHandle(&neighbour.opened, offer.memory, cudaIpcMemLazyEnablePeerAccess),
             fmt::format("rank {} opening the arena of rank {} (each GPU must have access "
                         "to the other's memory: nvidia-smi topo -p2p r shows it; otherwise use "
                         "nccl)",
                         rank_.rank(), rank));
  neighbour.arena = static_cast<std::byte*>(neighbour.opened) + offer.offset;
  for (std::size_t i = 0; i < events; ++i) {
    cudaEvent_t event = nullptr;
    check_cuda(cudaIpcOpenEventHandle(&event, offer.events[i]),
               fmt::format("rank {} opening an event of rank {}", rank_.rank(), rank));
    neighbour.events.push_back(event);
  }
}

void SharedArena::close() noexcept {
  if (device_is_stuck) return;
  for (int r = 0; r < rank_.size(); ++r) {
    if (r == rank_.rank()) continue;  // a rank destroys its own events itself
    for (cudaEvent_t event : neighbours_[r].events) static_cast<void>(cudaEventDestroy(event));
    if (neighbours_[r].opened) static_cast<void>(cudaIpcCloseMemHandle(neighbours_[r].opened));
  }
}

SharedArena::~SharedArena() {
  close();
  try {
    require(!rank_.failed, "the group has failed");
    rank_.group.barrier();  // all ranks have closed the arenas freed next
  } catch (const std::exception&) {
    memory_.leak();
  }
}

}  // namespace ringside::collectives::cuda
