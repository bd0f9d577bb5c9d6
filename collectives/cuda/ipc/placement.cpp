#include "collectives/cuda/ipc/placement.hpp"

#include <algorithm>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.hpp"
#include "collectives/bootstrap/rank_location.hpp"
#include "collectives/calls/values_of_all_ranks.hpp"
#include "collectives/diagnostics/rank_failure.hpp"

namespace ringside::collectives::cuda {
namespace {

// What each rank tells the others.
struct Place {
  RankLocation location;
  std::uint64_t area_bytes = 0;
  std::int32_t blocks = 0;
};

void require_compatible(const Place& a, std::size_t rank_a, const Place& b, std::size_t rank_b) {
  require(on_one_host(a.location, b.location),
          "rank {} runs on host {} and rank {} on host {}, but cuda_ipc is for ranks of one host: "
          "use nccl",
          rank_a, a.location.host, rank_b, b.location.host);
  require(!in_one_process(a.location, b.location),
          "ranks {} and {} are threads of one process, but cuda_ipc needs a process for each rank: "
          "use cuda_kernels",
          rank_a, rank_b);
  require(a.area_bytes == b.area_bytes,
          "cuda_ipc: rank {} has areas of {} bytes and rank {} of {}; expected the same", rank_a,
          a.area_bytes, rank_b, b.area_bytes);
}

}  // namespace

Placement::Placement(ProcessGroup& meeting, const Device& device, int blocks,
                     std::size_t area_bytes) {
  const Place mine{location_of_this_process(device.place), area_bytes, blocks};
  const auto places = values_of_all_ranks(meeting, mine, "cuda_ipc");
  least_blocks_ = blocks;
  for (std::size_t r = 0; r < places.size(); ++r) {
    least_blocks_ = std::min(least_blocks_, places[r].blocks);
    for (std::size_t s = 0; s < r; ++s) {
      require_compatible(places[s], s, places[r], r);
      if (!why_copies_ && on_one_gpu(places[s].location, places[r].location))
        why_copies_ = fmt::format("ranks {} and {} share GPU {}", s, r, places[r].location.gpu);
    }
  }
  if (!why_copies_ && least_blocks_ == 0)
    why_copies_ = "the kernels of earlier groups have all multiprocessors";
  for (const Place& place : places) {
    const bool can_be_watched = know_their_process_ids(place.location, mine.location) &&
                                !in_one_process(place.location, mine.location);
    processes_.emplace_back(
        can_be_watched ? static_cast<int>(::syscall(SYS_pidfd_open, place.location.process, 0))
                       : -1);
  }
}

void Placement::require_all_alive(const std::string& during) const {
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    pollfd process{processes_[r].get(), POLLIN, 0};  // readable when it has ended; -1 is ignored
    if (::poll(&process, 1, 0) == 1 && (process.revents & POLLIN))
      throw RankFailure(static_cast<int>(r),
                        fmt::format("{}: the process of rank {} has ended", during, r));
  }
}

}  // namespace ringside::collectives::cuda
