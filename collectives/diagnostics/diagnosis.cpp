#include "collectives/diagnostics/diagnosis.hpp"

#include <algorithm>

namespace ringside::collectives {
namespace {

// Without point-to-point calls: each pair of ranks numbers its own.
std::vector<FlightEntry> collectives_of(const Flight& flight) {
  std::vector<FlightEntry> entries = flight.entries;
  std::erase_if(entries, [](const FlightEntry& entry) {
    return entry.call.collective == Collective::point_to_point;
  });
  return entries;
}

}  // namespace

std::optional<Divergence> divergence(const std::vector<Flight>& flights) {
  std::map<std::uint64_t, std::map<std::string, std::vector<int>>> calls;
  for (const Flight& flight : flights)
    for (const FlightEntry& entry : collectives_of(flight))
      calls[entry.sequence][describe(entry.call)].push_back(flight.header.rank);
  for (const auto& [sequence, made] : calls)
    if (made.size() > 1) return Divergence{sequence, made};
  return std::nullopt;
}

std::optional<Laggards> laggards(const std::vector<Flight>& flights) {
  const auto last_of = [](const Flight& flight) {
    const auto entries = collectives_of(flight);
    return entries.empty() ? std::uint64_t(0) : entries.back().sequence;
  };
  Laggards found;
  for (const Flight& flight : flights) found.sequence = std::max(found.sequence, last_of(flight));
  for (const Flight& flight : flights)
    if (last_of(flight) < found.sequence) found.ranks.push_back(flight.header.rank);
  if (found.ranks.empty()) return std::nullopt;
  return found;
}

std::vector<int> without_record(const std::vector<Flight>& flights) {
  std::vector<int> absent;
  auto next = flights.begin();
  for (int rank = 0; rank < flights.front().header.size; ++rank) {
    const bool is_here = next != flights.end() && next->header.rank == rank;
    if (is_here)
      ++next;
    else
      absent.push_back(rank);
  }
  return absent;
}

std::vector<int> circle(const std::vector<Flight>& flights) {
  std::map<int, int> waits_for;  // [rank] the rank whose message it lacks
  for (const Flight& flight : flights) {
    if (flight.entries.empty()) continue;
    const FlightEntry& last = flight.entries.back();
    if (last.call.collective == Collective::point_to_point && last.state != FlightEntry::done &&
        last.waiting_for >= 0)
      waits_for[flight.header.rank] = last.waiting_for;
  }
  for (const auto& [first, next] : waits_for) {
    std::vector<int> ranks{first};
    for (int rank = next; rank != first; rank = waits_for[rank]) {
      // A rank that does not wait ends the chain; one that was there before closes a circle without
      // `first`.
      if (!waits_for.contains(rank) || ranks.size() > waits_for.size()) {
        ranks.clear();
        break;
      }
      ranks.push_back(rank);
    }
    if (!ranks.empty()) return ranks;
  }
  return {};
}

}  // namespace ringside::collectives
