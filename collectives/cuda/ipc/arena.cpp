#include "collectives/cuda/ipc/arena.hpp"

#include <algorithm>

#include "base/cuda.hpp"
#include "collectives/process_group.hpp"

namespace ringside::collectives::cuda {

// What a rank tells the others, so that they can open its arena and its events.
struct Offer {
  static constexpr std::size_t most_events = 4;
  cudaIpcMemHandle_t memory{};
  std::uint64_t offset = 0;  // of the arena in its allocation
  cudaIpcEventHandle_t events[most_events] = {};
};

namespace {

// Calls the driver's cuMemGetAddressRange, looked up at run time: the program is not linked with
// libcuda, which a machine without a GPU does not have.
std::uint64_t offset_in_allocation(const void* pointer) {
  using AddressRange = int (*)(std::uint64_t * base, std::size_t * bytes, std::uint64_t pointer);
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check_cuda(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function, 12000,
                                              cudaEnableDefault, &found),
             "looking up cuMemGetAddressRange in the driver");
  require(found == cudaDriverEntryPointSuccess && function,
          "the NVIDIA driver has no cuMemGetAddressRange: it is too old for CUDA 12");
  std::uint64_t base = 0;
  std::size_t bytes = 0;
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  const int result = reinterpret_cast<AddressRange>(function)(&base, &bytes, address);
  require(result == 0, "cuMemGetAddressRange failed with driver error {}", result);
  return address - base;
}

}  // namespace

Arena::Arena(std::size_t bytes)
    : bytes_((std::max<std::size_t>(bytes, 1) + granularity - 1) / granularity * granularity) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes_), fmt::format("allocating an arena of {} bytes", bytes_));
  data_ = static_cast<std::byte*>(memory);
}

Arena::~Arena() {
  free_device_memory(data_);
}

Neighbours::Neighbours(ProcessGroup& meeting, const Arena& mine,
                       const std::vector<cudaEvent_t>& events)
    : self_(meeting.rank()), ranks_(static_cast<std::size_t>(meeting.size())) {
  require(events.size() <= Offer::most_events, "a rank shares at most {} events, not {}",
          Offer::most_events, events.size());
  Offer offer;
  check_cuda(cudaIpcGetMemHandle(&offer.memory, mine.data()),
             fmt::format("sharing the arena of rank {}", self_));
  offer.offset = offset_in_allocation(mine.data());
  for (std::size_t i = 0; i < events.size(); ++i)
    check_cuda(cudaIpcGetEventHandle(&offer.events[i], events[i]),
               fmt::format("sharing an event of rank {}", self_));
  std::vector<Offer> all(ranks_.size());
  meeting.all_gather({&offer, sizeof offer, DataType::uint8},
                     {all.data(), sizeof offer * all.size(), DataType::uint8}, "cuda_ipc");

  try {
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (static_cast<int>(r) != self_) open(ranks_[r], all[r], events.size(), static_cast<int>(r));
    }
    ranks_[static_cast<std::size_t>(self_)] = {nullptr, mine.data(), events};
  } catch (...) {
    close();
    throw;
  }
}

void Neighbours::open(Rank& rank, const Offer& offer, std::size_t events, int number) {
  check_cuda(cudaIpcOpenMemHandle(&rank.opened, offer.memory, cudaIpcMemLazyEnablePeerAccess),
             fmt::format("rank {} opening the arena of rank {} (each GPU must have access "
                         "to the other's memory: nvidia-smi topo -p2p r shows it; otherwise use "
                         "nccl)",
                         self_, number));
  rank.arena = static_cast<std::byte*>(rank.opened) + offer.offset;
  for (std::size_t i = 0; i < events; ++i) {
    cudaEvent_t event = nullptr;
    check_cuda(cudaIpcOpenEventHandle(&event, offer.events[i]),
               fmt::format("rank {} opening an event of rank {}", self_, number));
    rank.events.push_back(event);
  }
}

void Neighbours::close() noexcept {
  if (device_is_stuck) return;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (static_cast<int>(r) == self_) continue;  // a rank destroys its own events itself
    for (cudaEvent_t event : ranks_[r].events) static_cast<void>(cudaEventDestroy(event));
    if (ranks_[r].opened) static_cast<void>(cudaIpcCloseMemHandle(ranks_[r].opened));
  }
  ranks_.clear();
}

Neighbours::~Neighbours() {
  close();
}

}  // namespace ringside::collectives::cuda
