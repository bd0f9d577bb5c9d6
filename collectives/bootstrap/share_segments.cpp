#include "collectives/bootstrap/share_segments.hpp"

#include <cstring>

#include "base/error.hpp"
#include "collectives/bootstrap/exchange.hpp"
#include "collectives/bootstrap/rank_location.hpp"

namespace ringside::collectives {
namespace {

// The first round: each rank tells every other where its segment is, or why it has none.
struct Introduction {
  static constexpr std::uint32_t expected_magic = 0x4d474e52;  // "RNGM"
  std::uint32_t magic = expected_magic;
  ShmLayout layout{};
  SharedSegment::Handle segment;
  RankLocation location;
  std::uint32_t is_crowded = 0;
  char problem[512] = {};
};

// The second round: each rank tells whether it has opened all segments, or why not.
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

template <class T>
void throw_first_problem(const std::vector<T>& all) {
  for (const T& each : all)
    if (each.problem[0] != '\0') throw CannotShare(get(each.problem));
}

template <class... Args>
void require_shareable(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) throw CannotShare(fmt::format(text, std::forward<Args>(args)...));
}

void check_all_can_share(const std::vector<Introduction>& all, const RankNames& names) {
  const Introduction& first = all.front();
  const std::string first_rank = names(0);
  for (int r = 0; r < static_cast<int>(all.size()); ++r) {
    const Introduction& other = all[r];
    const std::string rank = names(r);
    require_shareable(
        other.magic == first.magic,
        "rank {} sent no valid description of its memory: do the ranks run different versions?",
        rank);
    require_shareable(
        on_one_host(other.location, first.location),
        "rank {} runs on host {}, and rank {} on host {}: only ranks of one host can share memory. "
        "Across hosts take another backend (--backend tcp)",
        rank, get(other.location.host), first_rank, get(first.location.host));
    require_shareable(
        know_their_process_ids(other.location, first.location),
        "rank {} runs in another container (process-ID namespace) than rank {}, and they "
        "cannot reach each other's memory: start all ranks in one, or take another backend "
        "(--backend tcp)",
        rank, first_rank);
    require_shareable(
        other.layout == first.layout && other.segment.bytes == first.segment.bytes,
        "rank {} has {} slots, pieces of {} bytes and room for {}, and rank {} {}, {} "
        "and {}: do the ranks run different versions?",
        rank, other.layout.slots, other.layout.piece_bytes, other.layout.room_bytes, first_rank,
        first.layout.slots, first.layout.piece_bytes, first.layout.room_bytes);
  }
}

}  // namespace

std::vector<SharedSegment> share_segments(const RankInfo& rank_info, Mesh& mesh,
                                          const ShmLayout& layout, bool& is_crowded) {
  const Deadline deadline = Deadline::after(rank_info.connect_timeout);
  SharedSegment own;
  Introduction mine;
  mine.layout = layout;
  mine.location = location_of_this_process();
  mine.is_crowded = is_crowded;
  try {
    own = SharedSegment::create(shm_segment_bytes(layout, rank_info.size),
                                "rank " + mesh.names(rank_info.rank));
    mine.segment = own.handle();
  } catch (const Error& error) {
    put(mine.problem, error.what());
  }
  const auto all = exchange(mesh, rank_info.rank, mine, deadline);
  throw_first_problem(all);
  check_all_can_share(all, mesh.names);
  is_crowded = all.front().is_crowded != 0;

  std::vector<SharedSegment> segments;
  Report report;
  try {
    for (int r = 0; r < rank_info.size; ++r)
      segments.push_back(r == rank_info.rank ? std::move(own)
                                             : SharedSegment::open(all[r].segment));
  } catch (const Error& error) {
    put(report.problem, fmt::format("rank {}: {}", mesh.names(rank_info.rank), error.what()));
  }
  throw_first_problem(exchange(mesh, rank_info.rank, report, deadline));
  return segments;
}

}  // namespace ringside::collectives
