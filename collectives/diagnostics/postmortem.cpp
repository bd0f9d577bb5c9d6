// Reads the files of all ranks' flight recorders, and works out what happened.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>

#include "base/error.hpp"
#include "base/words.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"

namespace ringside::collectives {
namespace {

Flight read_flight(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  Flight flight;
  require(bytes.size() >= sizeof flight.header, "{} is not a flight recorder's file, or is cut off",
          path.string());
  std::memcpy(&flight.header, bytes.data(), sizeof flight.header);
  auto& header = flight.header;
  require(
      header.magic == FlightHeader::expected_magic && header.entries == FlightRecorder::capacity &&
          header.rank >= 0 && header.rank < header.size &&
          bytes.size() == sizeof header + header.entries * sizeof(FlightEntry),
      "{} is not a flight recorder's file, or is cut off, or is of another version", path.string());
  header.cause[sizeof header.cause - 1] = '\0';
  header.group[sizeof header.group - 1] = '\0';
  flight.entries.resize(header.entries);
  std::memcpy(flight.entries.data(), bytes.data() + sizeof header,
              header.entries * sizeof(FlightEntry));
  std::erase_if(flight.entries, [](const FlightEntry& entry) { return entry.sequence == 0; });
  std::sort(flight.entries.begin(), flight.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.began_ns, a.sequence) < std::pair(b.began_ns, b.sequence);
  });
  return flight;
}

std::string line_of(const Flight& flight) {
  const std::string who = fmt::format("rank {:<3} ", flight.header.rank);
  if (flight.entries.empty()) return who + "had made no call";
  const FlightEntry& last = flight.entries.back();
  const auto what = fmt::format("call #{}, {}", last.sequence, describe(last.call));
  if (last.state == FlightEntry::done)
    return fmt::format("{}had ended {}, and was in no call", who, what);
  const double seconds =
      static_cast<double>((last.ended_ns ? last.ended_ns : flight.header.written_ns) -
                          last.began_ns) *
      1e-9;
  return fmt::format(
      "{}{} {} for {:.1f} s: step {} of {}, {} bytes received{}", who,
      last.state == FlightEntry::failed ? "failed in" : "was in", what, seconds,
      std::min(last.step + 1, last.steps), last.steps, last.bytes_received,
      last.waiting_for >= 0 ? fmt::format(", waiting for rank {}", last.waiting_for) : "");
}

// Without point-to-point calls: each pair of ranks numbers its own.
std::vector<FlightEntry> collectives_of(const Flight& flight) {
  std::vector<FlightEntry> entries = flight.entries;
  std::erase_if(entries, [](const FlightEntry& entry) {
    return entry.call.collective == Collective::point_to_point;
  });
  return entries;
}

// The first call in which the ranks differ; empty if the recorders have no such call.
std::string divergence(const std::vector<Flight>& flights) {
  // [sequence][call in words] the ranks that made it
  std::map<std::uint64_t, std::map<std::string, std::vector<int>>> calls;
  for (const Flight& flight : flights)
    for (const FlightEntry& entry : collectives_of(flight))
      calls[entry.sequence][describe(entry.call)].push_back(flight.header.rank);
  for (const auto& [sequence, made] : calls) {
    if (made.size() < 2) continue;
    std::string text = fmt::format("The ranks diverged at call #{}:", sequence);
    for (const auto& [call, ranks] : made)
      text += fmt::format("\n  {} made {}", ranks_in_words(ranks), call);
    return text + "\nEvery rank must make the same calls in the same order.";
  }
  return "";
}

// The ranks that are behind: all made the same calls, but some had not reached the last one.
std::string laggards(const std::vector<Flight>& flights) {
  const auto last_of = [](const Flight& flight) {
    const auto entries = collectives_of(flight);
    return entries.empty() ? std::uint64_t(0) : entries.back().sequence;
  };
  std::uint64_t furthest = 0;
  for (const Flight& flight : flights) furthest = std::max(furthest, last_of(flight));
  std::vector<int> behind;
  for (const Flight& flight : flights)
    if (last_of(flight) < furthest) behind.push_back(flight.header.rank);
  if (behind.empty()) return "";
  return fmt::format(
      "All made the same calls, but {} had not come to call #{}, in which the others wait: look at "
      "what {} did after the call before it.",
      ranks_in_words(behind), furthest, behind.size() == 1 ? "it" : "they");
}

// `flights` are those of one group, in the order of ranks.
std::string postmortem_of_group(const std::vector<Flight>& flights) {
  const int size = flights.front().header.size;
  std::string text;
  std::vector<int> absent;
  auto next = flights.begin();
  for (int rank = 0; rank < size; ++rank) {
    if (next != flights.end() && next->header.rank == rank) {
      text += line_of(*next++) + "\n";
    } else {
      absent.push_back(rank);
    }
  }
  if (!absent.empty())
    text += fmt::format("{} left no record: killed, or stuck, or on another host\n",
                        ranks_in_words(absent));

  const auto first = std::min_element(
      flights.begin(), flights.end(),
      [](const Flight& a, const Flight& b) { return a.header.written_ns < b.header.written_ns; });
  text += fmt::format("\nFirst to write, rank {}: {}\n", first->header.rank, first->header.cause);
  auto verdict = divergence(flights);
  if (verdict.empty()) verdict = laggards(flights);
  if (verdict.empty() && !absent.empty())
    verdict = fmt::format("All that left a record made the same calls: look at {}.",
                          ranks_in_words(absent));
  if (verdict.empty()) verdict = "All ranks made the same calls and had come equally far.";
  return text + "\n" + verdict + "\n";
}

}  // namespace

std::vector<Flight> read_flights(const std::filesystem::path& folder) {
  require(std::filesystem::is_directory(folder),
          "{} is not a folder: name the one that RINGSIDE_FLIGHT_DIR named", folder.string());
  std::vector<Flight> flights;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".flight") flights.push_back(read_flight(entry.path()));
  require(!flights.empty(), "{} holds no file of a flight recorder (RANK.flight)", folder.string());
  std::sort(flights.begin(), flights.end(), [](const Flight& a, const Flight& b) {
    return std::pair(std::string_view(a.header.group), a.header.rank) <
           std::pair(std::string_view(b.header.group), b.header.rank);
  });
  for (std::size_t i = 1; i < flights.size(); ++i) {
    const FlightHeader &a = flights[i - 1].header, &b = flights[i].header;
    require(std::string_view(a.group) != b.group || a.size == b.size,
            "{} holds files of different jobs: of {} ranks, and of {}", folder.string(), a.size,
            b.size);
  }
  return flights;
}

std::string postmortem(const std::vector<Flight>& flights) {
  std::string text;
  for (auto first = flights.begin(); first != flights.end();) {
    const auto next = std::find_if(first, flights.end(), [&](const Flight& flight) {
      return std::string_view(flight.header.group) != first->header.group;
    });
    const std::string_view group = first->header.group;
    if (!group.empty())
      text += fmt::format("{}Sub-group {}, by its own numbers of ranks:\n",
                          text.empty() ? "" : "\n", sub_group_in_words(group));
    text += postmortem_of_group({first, next});
    first = next;
  }
  return text;
}

}  // namespace ringside::collectives
