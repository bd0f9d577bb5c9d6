// Reads the files of all ranks' flight recorders, and works out what happened.
#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/error.hpp"
#include "base/text/words.hpp"
#include "collectives/diagnostics/diagnosis.hpp"
#include "collectives/diagnostics/torch_flights.hpp"

namespace ringside::collectives {
namespace {

constexpr std::int32_t most_ranks = 1 << 20;  // a damaged header may name any number

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
          header.rank >= 0 && header.rank < header.size && header.size <= most_ranks &&
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

// Such a record does not say when and why it was written, nor the progress of a call.
bool is_of_torch(const Flight& flight) {
  return flight.header.written_ns == 0;
}

std::string line_of(const Flight& flight) {
  const std::string who = fmt::format("rank {:<3} ", flight.header.rank);
  if (flight.entries.empty()) return who + "had made no call";
  const FlightEntry& last = flight.entries.back();
  const auto what = fmt::format("call #{}, {}", last.sequence, describe(last.call));
  if (last.state == FlightEntry::done)
    return fmt::format("{}had ended {}, and was in no call", who, what);
  const auto until =
      static_cast<double>(last.failed_ns ? last.failed_ns : flight.header.written_ns);
  const double seconds = (until - static_cast<double>(last.began_ns)) * 1e-9;
  return fmt::format(
      "{}{} {}{}{}", who, last.state == FlightEntry::failed ? "failed in" : "was in", what,
      is_of_torch(flight)
          ? ""
          : fmt::format(" for {:.1f} s: step {} of {}, {} bytes received", seconds,
                        std::min(last.step + 1, last.steps), last.steps, last.bytes_received),
      last.waiting_for >= 0 ? fmt::format(", waiting for rank {}", last.waiting_for) : "");
}

std::string in_words(const Divergence& found) {
  std::string text = fmt::format("The ranks diverged at call #{}:", found.sequence);
  for (const auto& [call, ranks] : found.made)
    text += fmt::format("\n  {} made {}", ranks_in_words(ranks), call);
  return text + "\nEvery rank must make the same calls in the same order.";
}

std::string in_words(const Laggards& found) {
  return fmt::format(
      "All made the same calls, but {} had not come to call #{}, in which the others wait: look at "
      "what {} did after the call before it.",
      ranks_in_words(found.ranks), found.sequence, found.ranks.size() == 1 ? "it" : "they");
}

// Of ranks that wait for each other's messages.
std::string circle_in_words(const std::vector<int>& ranks) {
  std::string text = "Ranks wait for each other in a circle: ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += fmt::format("{}rank {} for rank {}", i == 0 ? "" : ", ", ranks[i],
                        ranks[(i + 1) % ranks.size()]);
  return text + ". One of them must send before it receives.";
}

std::string verdict_of(const std::vector<Flight>& flights, const std::vector<int>& absent) {
  if (const auto found = divergence(flights)) return in_words(*found);
  if (const auto ranks = circle(flights); !ranks.empty()) return circle_in_words(ranks);
  const auto late = laggards(flights);
  if (absent.empty())
    return late ? in_words(*late) : "All ranks made the same calls and had come equally far.";
  // The cause may be a rank that died while the late ones were on their way to the call.
  return fmt::format("{} look at {}.",
                     late ? in_words(*late) + " Or the cause is a rank that left no record:"
                          : "All that left a record made the same calls:",
                     ranks_in_words(absent));
}

// `flights` are those of one group, in the order of ranks.
std::string postmortem_of_group(const std::vector<Flight>& flights) {
  std::string text;
  for (const Flight& flight : flights) text += line_of(flight) + "\n";
  const std::vector<int> absent = without_record(flights);
  if (!absent.empty())
    text += fmt::format("{} left no record: killed, or stuck, or on another host\n",
                        ranks_in_words(absent));

  const auto first = std::min_element(
      flights.begin(), flights.end(),
      [](const Flight& a, const Flight& b) { return a.header.written_ns < b.header.written_ns; });
  if (!is_of_torch(*first))
    text += fmt::format("\nFirst to write, rank {}: {}\n", first->header.rank, first->header.cause);
  return text + "\n" + verdict_of(flights, absent) + "\n";
}

}  // namespace

std::vector<Flight> read_flights(const std::filesystem::path& folder) {
  require(std::filesystem::is_directory(folder),
          "{} is not a folder: name the one that RINGSIDE_FLIGHT_DIR named", folder.string());
  std::vector<Flight> flights;
  std::vector<std::filesystem::path> of_torch;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".flight") flights.push_back(read_flight(entry.path()));
    if (is_torch_flight(entry.path())) of_torch.push_back(entry.path());
  }
  std::ranges::move(read_torch_flights(of_torch), std::back_inserter(flights));
  require(!flights.empty(),
          "{} holds no file of a flight recorder (RANK.flight, or PyTorch's nccl_trace_rank_RANK)",
          folder.string());
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
