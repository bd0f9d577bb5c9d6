// Reads flight records: a folder of the recorders' files, or JSON with those of PyTorch.
#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/read_file.hpp"
#include "collectives/diagnostics/live_view.hpp"

namespace ringside::collectives {
namespace {

constexpr std::int32_t most_ranks = 1 << 20;  // a damaged header may name any number

}  // namespace

Flight read_flight(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
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
  header.mesh[sizeof header.mesh - 1] = '\0';
  flight.entries.resize(header.entries);
  std::memcpy(flight.entries.data(), bytes.data() + sizeof header,
              header.entries * sizeof(FlightEntry));
  std::erase_if(flight.entries, [](const FlightEntry& entry) { return entry.sequence == 0; });
  std::sort(flight.entries.begin(), flight.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.began_ns, a.sequence) < std::pair(b.began_ns, b.sequence);
  });
  return flight;
}

namespace {

// ---- JSON

template <class Enum>
Enum value_named(std::string_view name, Enum last) {
  for (int i = 0; i <= static_cast<int>(last); ++i)
    if (name_of(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  fail("{} is neither a collective nor a type", name);
}

FlightEntry entry_of(const Json& json) {
  FlightEntry entry;
  entry.sequence = json.at("number");
  entry.state = json.at("ended").get<bool>() ? FlightEntry::done : FlightEntry::under_way;
  entry.waiting_for = json.value("waiting_for", -1);
  entry.began_ns = json.value("began_ns", std::int64_t(0));
  Call& call = entry.call;
  call.algorithm = Call::not_told;
  call.collective = value_named(json.at("collective").text(), Collective::point_to_point);
  call.type = value_named(json.at("type").text(), DataType::boolean);
  call.count = json.at("count");
  call.label = Label(json.value("label", std::string()));
  call.root = json.value("root", 0), call.peer = json.value("peer", 0);
  return entry;
}

Flight flight_of(const Json& json) {
  Flight flight{{.rank = json.at("rank"), .size = json.at("size")}, {}};
  auto& header = flight.header;
  require(header.rank >= 0 && header.rank < header.size && header.size <= most_ranks,
          "rank {} of {} ranks", header.rank, header.size);
  json.value("group", std::string()).copy(header.group, sizeof header.group - 1);
  for (const Json& call : json.at("calls")) flight.entries.push_back(entry_of(call));
  return flight;
}

// Such a record does not say when and why it was written, nor the progress of a call.
std::vector<Flight> read_json(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  std::vector<Flight> flights;
  try {
    const Json file = Json::parse(text);
    for (const Json& each : file.at("flights")) flights.push_back(flight_of(each));
    require(!flights.empty(), "it has no flight");
  } catch (const Error& error) {
    fail("{} has no flight records in JSON: {}", path.string(), error.what());
  }
  return flights;
}

// ---- The files of recorders

struct FlightFile {
  std::string name;
  Flight flight;

  std::int64_t end() const { return flight.header.written_ns; }
  // The rank was in its job from its first call, or at least for a minute without one.
  std::int64_t begin() const {
    return flight.entries.empty() ? end() - 60'000'000'000 : flight.entries.front().began_ns;
  }
};

// Whether two ranks ran at the same time; the clocks of hosts may differ by ten seconds.
bool overlap(const FlightFile& a, const FlightFile& b) {
  return std::max(a.begin(), b.begin()) - std::min(a.end(), b.end()) <= 10'000'000'000;
}

std::vector<FlightFile> files_in(const std::filesystem::path& folder) {
  std::vector<FlightFile> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".flight")
      files.push_back({entry.path().filename(), read_flight(entry.path())});
  return files;
}

// The flights of the job that wrote last. A folder may also hold files of earlier ones: what was
// written before the ranks of this job began, or by a rank of a job of another size.
std::vector<Flight> flights_of_last_job(std::vector<FlightFile> files, std::string* left_out) {
  std::ranges::sort(files, [](const FlightFile& a, const FlightFile& b) {
    return std::pair(b.end(), a.name) < std::pair(a.end(), b.name);
  });
  const std::int64_t newest = files.empty() ? 0 : files.front().end();
  std::optional<int> size;
  std::vector<FlightFile> job;
  std::string others;
  for (FlightFile& file : files) {
    const FlightHeader& header = file.flight.header;
    const bool is_of_all = header.group[0] == '\0';
    const bool same_size = !is_of_all || size.value_or(header.size) == header.size;
    const auto overlaps = [&](const FlightFile& member) { return overlap(file, member); };
    if (same_size && (job.empty() || std::ranges::any_of(job, overlaps))) {
      if (is_of_all) size = header.size;
      job.push_back(std::move(file));
      continue;
    }
    const double minutes = static_cast<double>(newest - file.end()) / 60e9;
    others += fmt::format("  {} is of another job{}, {:.1f} {} earlier\n", file.name,
                          same_size ? "" : fmt::format(" of {} ranks", header.size),
                          minutes >= 60 ? minutes / 60 : minutes, minutes >= 60 ? "h" : "min");
  }
  if (left_out != nullptr && !others.empty()) *left_out = "\nLeft out:\n" + others;
  std::vector<Flight> flights;
  for (FlightFile& file : job) flights.push_back(std::move(file.flight));
  return flights;
}

}  // namespace

bool has_flights(const std::filesystem::path& folder) {
  return std::filesystem::is_directory(folder) &&
         std::ranges::any_of(std::filesystem::directory_iterator(folder), [](const auto& entry) {
           return entry.path().extension() == ".flight";
         });
}

std::vector<Flight> read_flights(const std::filesystem::path& path, std::string* left_out) {
  const bool is_file = std::filesystem::exists(path) && !std::filesystem::is_directory(path);
  require(is_file || std::filesystem::is_directory(path),
          "{} is not a folder: name the one that RINGSIDE_FLIGHT_DIR named", path.string());
  std::vector<Flight> flights =
      is_file ? read_json(path) : flights_of_last_job(files_in(path), left_out);
  require(!flights.empty(),
          "{} holds no file of a flight recorder (RANK.flight, or PyTorch's nccl_trace_rank_RANK)",
          path.string());
  std::sort(flights.begin(), flights.end(), [](const Flight& a, const Flight& b) {
    return std::pair(std::string_view(a.header.group), a.header.rank) <
           std::pair(std::string_view(b.header.group), b.header.rank);
  });
  for (std::size_t i = 1; i < flights.size(); ++i) {
    const FlightHeader &a = flights[i - 1].header, &b = flights[i].header;
    if (std::string_view(a.group) != b.group) continue;
    require(a.size == b.size, "{} holds files of different jobs: of {} ranks, and of {}",
            path.string(), a.size, b.size);
    require(a.rank != b.rank, "{} holds two records of rank {}: leave one of them there",
            path.string(), a.rank);
  }
  return flights;
}

}  // namespace ringside::collectives
