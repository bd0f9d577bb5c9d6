#include "collectives/transport/shm/shm_meeting.hpp"

#include <cstring>
#include <fstream>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"

namespace ringside::collectives {
namespace {

// What each rank tells every other. A rank that has failed says so here, so that all of them know
// why.
struct Introduction {
  static constexpr std::uint32_t expected_magic = 0x4d474e52;  // "RNGM"
  std::uint32_t magic = expected_magic;
  ShmLayout layout{};
  std::uint32_t unused = 0;
  SharedSegment::Handle segment;
  std::uint64_t pid_namespace = 0;
  char boot_id[40] =
      {};  // of the running kernel: the same for all processes of a host, and for no other host
  char host[64] = {};
  char problem[512] = {};
};

// The second round: everybody has opened everything, or why not.
struct Report {
  char problem[512] = {};
};

template <std::size_t n>
void put(char (&text)[n], const std::string& from) {
  from.copy(text, n - 1);
}

template <std::size_t n>
std::string get(const char (&text)[n]) {
  return std::string(text, ::strnlen(text, n));
}

Introduction introduce(const ShmLayout& layout) {
  Introduction mine;
  mine.layout = layout;
  struct stat ns {};
  if (::stat("/proc/self/ns/pid", &ns) == 0) mine.pid_namespace = ns.st_ino;
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot_id);
  put(mine.boot_id, boot_id);
  ::gethostname(mine.host, sizeof mine.host - 1);
  return mine;
}

void send_all(int socket, const void* bytes, std::size_t length, int peer) {
  const auto* next = static_cast<const char*>(bytes);
  while (length > 0) {
    const auto n = ::send(socket, next, length, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    require(n > 0, "rank {} went away while the ranks were about to share memory ({})", peer,
            std::strerror(errno));
    next += n, length -= static_cast<std::size_t>(n);
  }
}

void receive_all(int socket, void* bytes, std::size_t length, int peer, const Deadline& deadline) {
  auto* next = static_cast<char*>(bytes);
  while (length > 0) {
    pollfd watched{socket, POLLIN, 0};
    const int ready = ::poll(&watched, 1, deadline.remaining_ms());
    require(ready != 0, "rank {} did not share its memory within {:.0f} s", peer,
            deadline.total().count());
    if (ready < 0 && errno == EINTR) continue;
    const auto n = ::recv(socket, next, length, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    require(n > 0, "rank {} went away while the ranks were about to share memory", peer);
    next += n, length -= static_cast<std::size_t>(n);
  }
}

// Everybody's words to everybody: element r is what rank r says. They are short, and fit into what
// the kernel keeps of a connection.
template <class Words>
std::vector<Words> exchange(Mesh& mesh, int rank, const Words& mine, const Deadline& deadline) {
  const int size = static_cast<int>(mesh.data.size());
  std::vector<Words> all(size, mine);
  for (int r = 0; r < size; ++r)
    if (r != rank) send_all(mesh.data[r]->native_handle(), &mine, sizeof mine, r);
  for (int r = 0; r < size; ++r)
    if (r != rank) receive_all(mesh.data[r]->native_handle(), &all[r], sizeof(Words), r, deadline);
  return all;
}

template <class Words>
void throw_first_problem(const std::vector<Words>& all) {
  for (const Words& words : all)
    if (words.problem[0] != '\0') throw CannotShare(get(words.problem));
}

template <class... Args>
void agree(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) throw CannotShare(fmt::format(text, std::forward<Args>(args)...));
}

void check_neighbourhood(const std::vector<Introduction>& all) {
  const Introduction& first = all.front();
  for (std::size_t r = 0; r < all.size(); ++r) {
    const Introduction& other = all[r];
    agree(other.magic == first.magic,
          "what rank {} says of its memory makes no sense: do the ranks run different versions?",
          r);
    agree(get(other.boot_id) == get(first.boot_id),
          "rank {} runs on host {}, and rank 0 on host {}: shared memory joins ranks of one "
          "host. Across hosts take another backend (--backend tcp)",
          r, get(other.host), get(first.host));
    agree(other.pid_namespace == first.pid_namespace,
          "rank {} runs in another container (process-ID namespace) than rank 0, and they "
          "cannot reach each other's memory: start all ranks in one, or take another backend "
          "(--backend tcp)",
          r);
    agree(other.layout == first.layout,
          "rank {} has {} slots of {} bytes, and rank 0 has {} of {}: do the ranks run different "
          "versions "
          "or settings (RINGSIDE_SLICE_BYTES)?",
          r, other.layout.slots, other.layout.slot_bytes, first.layout.slots,
          first.layout.slot_bytes);
  }
}

}  // namespace

SharedWorld share_segments(const RankInfo& rank_info, Mesh& mesh, const ShmLayout& layout,
                           std::size_t segment_bytes) {
  const Deadline deadline = Deadline::after(rank_info.connect_timeout);
  SharedSegment own;
  Introduction mine = introduce(layout);
  try {
    own = SharedSegment::create(segment_bytes, fmt::format("rank {}", rank_info.rank),
                                fmt::format("for messages from {} ranks", rank_info.size - 1));
    mine.segment = own.handle();
  } catch (const Error& error) {
    put(mine.problem, error.what());
  }
  const auto all = exchange(mesh, rank_info.rank, mine, deadline);
  throw_first_problem(all);
  check_neighbourhood(all);

  SharedWorld world;
  Report report;
  try {
    for (int r = 0; r < rank_info.size; ++r) {
      world.segments.push_back(r == rank_info.rank ? std::move(own)
                                                   : SharedSegment::open(all[r].segment));
      world.pids.push_back(all[r].segment.pid);
    }
  } catch (const Error& error) {
    put(report.problem, fmt::format("rank {}: {}", rank_info.rank, error.what()));
  }
  throw_first_problem(exchange(mesh, rank_info.rank, report, deadline));
  return world;
}

}  // namespace ringside::collectives
