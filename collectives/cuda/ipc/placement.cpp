#include "collectives/cuda/ipc/placement.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.hpp"
#include "collectives/bootstrap/host_identity.hpp"
#include "collectives/diagnostics/rank_failure.hpp"
#include "collectives/process_group.hpp"

namespace ringside::collectives::cuda {
namespace {

// What each rank tells the others.
struct Seat {
  char host[64] = {};           // its name, for messages: two hosts may have the same
  char bus[32] = {};            // PCI bus id of the GPU
  std::uint64_t boot = 0;       // hash of the host's boot id
  std::uint64_t container = 0;  // hash of the boot id and the namespace of process IDs
  std::int64_t process = 0;     // its ID in that namespace
  std::uint64_t area_bytes = 0;
  std::int32_t blocks = 0;
};

Seat this_seat(const Device& device, int blocks, std::size_t area_bytes) {
  Seat seat;
  require(::gethostname(seat.host, sizeof seat.host - 1) == 0, "cannot read this host's name: {}",
          std::strerror(errno));
  device.bus.copy(seat.bus, sizeof seat.bus - 1);
  const HostIdentity host = host_identity();
  seat.boot = hash_of({host.boot_id, 0});
  seat.container = hash_of(host);
  seat.process = ::getpid();
  seat.area_bytes = area_bytes;
  seat.blocks = blocks;
  return seat;
}

void require_compatible(const Seat& a, std::size_t rank_a, const Seat& b, std::size_t rank_b) {
  require(a.boot == b.boot,
          "rank {} runs on host {} and rank {} on host {}, but cuda_ipc is for ranks of one host: "
          "use nccl",
          rank_a, a.host, rank_b, b.host);
  require(a.container != b.container || a.process != b.process,
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
  const Seat mine = this_seat(device, blocks, area_bytes);
  std::vector<Seat> seats(static_cast<std::size_t>(meeting.size()));
  meeting.all_gather({&mine, sizeof mine, DataType::uint8},
                     {seats.data(), sizeof mine * seats.size(), DataType::uint8}, "cuda_ipc");
  least_blocks_ = blocks;
  for (std::size_t r = 0; r < seats.size(); ++r) {
    least_blocks_ = std::min(least_blocks_, seats[r].blocks);
    for (std::size_t s = 0; s < r; ++s) {
      require_compatible(seats[s], s, seats[r], r);
      if (!shared_gpu_ && std::string_view(seats[s].bus) == seats[r].bus)
        shared_gpu_ = fmt::format("ranks {} and {} share GPU {}", s, r, seats[r].bus);
    }
  }
  for (const Seat& seat : seats)
    processes_.push_back(seat.container == mine.container && seat.process != mine.process
                             ? static_cast<int>(::syscall(SYS_pidfd_open, seat.process, 0))
                             : -1);
}

Placement::~Placement() {
  for (const int process : processes_)
    if (process >= 0) ::close(process);
}

void Placement::require_all_alive(const std::string& during) const {
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    pollfd process{processes_[r], POLLIN, 0};  // readable when it has ended; -1 is ignored
    if (::poll(&process, 1, 0) == 1 && (process.revents & POLLIN))
      throw RankFailure(static_cast<int>(r),
                        fmt::format("{}: the process of rank {} has ended", during, r));
  }
}

}  // namespace ringside::collectives::cuda
