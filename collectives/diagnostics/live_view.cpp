#include "collectives/diagnostics/live_view.hpp"
#include "collectives/rank_names.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace ringside::collectives {
namespace {

RankStatus status_of(const Flight& flight) {
  const FlightHeader& header = flight.header;
  const RankNames names = names_in(header);
  RankStatus status;
  status.rank = names.in_job(header.rank);
  if (flight.entries.empty()) return status;
  const FlightEntry& last = flight.entries.back();
  const std::string_view group = header.group;
  status.in_call = last.state != FlightEntry::done;
  status.call = fmt::format("#{}{}, {}", last.sequence,
                            group.empty() ? "" : " of " + sub_group_in_words(group),
                            describe(last.call, names));
  status.step = std::min(last.step, std::max(last.steps, 1U) - 1);
  status.steps = last.steps;
  status.seconds = static_cast<double>(header.written_ns - last.began_ns) * 1e-9;
  if (status.in_call && last.waiting_for >= 0) status.waits_for = names.in_job(last.waiting_for);
  return status;
}

}  // namespace

RankNames names_of_job(const std::vector<Flight>& flights) {
  for (const Flight& flight : flights)
    if (flight.header.mesh[0] != '\0') return RankNames({}, flight.header.mesh);
  return {};
}

std::vector<RankStatus> status_of_ranks(const std::vector<Flight>& flights) {
  std::map<int, RankStatus> ranks;
  for (const Flight& flight : flights) {
    const RankStatus status = status_of(flight);
    const auto [known, is_new] = ranks.try_emplace(status.rank, status);
    const RankStatus& other = known->second;
    // A call that is under way counts more than one that has ended, then a later one.
    const bool tells_more = other.call.empty() || std::pair(!status.in_call, status.seconds) <
                                                      std::pair(!other.in_call, other.seconds);
    if (!is_new && tells_more && !status.call.empty()) known->second = status;
  }
  std::vector<RankStatus> all;
  for (const auto& [rank, status] : ranks) all.push_back(status);
  return all;
}

WaitGraph waits_in(const std::vector<Flight>& flights, double seconds) {
  WaitGraph graph;
  for (const Flight& flight : flights) {
    if (!knows_ranks_of_job(flight.header)) continue;
    const RankStatus status = status_of(flight);
    if (status.waits_for >= 0 && status.seconds >= seconds)
      graph.add(status.rank, status.waits_for);
  }
  return graph;
}

}  // namespace ringside::collectives
