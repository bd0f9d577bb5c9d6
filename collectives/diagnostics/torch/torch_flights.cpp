#include "collectives/diagnostics/torch/torch_flights.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <regex>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/read_file.hpp"
#include "collectives/diagnostics/torch/pickle.hpp"

namespace ringside::collectives {
namespace {

const std::regex name_of_file(R"((?:.*_)?rank_(\d{1,7})(?:\.json|\.pickle|\.pkl)?)");

int rank_of(const std::filesystem::path& file) {
  std::smatch found;
  const std::string name = file.filename().string();
  std::regex_match(name, found, name_of_file);
  return std::stoi(found[1]);
}

// Numbers are numbers in a pickle and in some versions texts in JSON.
std::int64_t integer(const Json& value) {
  return value.is_string() ? std::stoll(value.get<std::string>())
         : value.is_null() ? 0
                           : value.get<std::int64_t>();
}

// "[0, 2, 3]"
std::vector<int> ranks_in(const std::string& text) {
  std::vector<int> ranks;
  const std::regex digits(R"(\d{1,7})");
  for (std::sregex_iterator each(text.begin(), text.end(), digits), end; each != end; ++each)
    ranks.push_back(std::stoi(each->str()));
  return ranks;
}

// The collective of a name without its backend: "all_reduce", "_reduce_scatter_base",
// "all_gather_into_tensor_coalesced".
std::optional<Collective> collective_of(std::string_view name) {
  while (name.starts_with('_')) name.remove_prefix(1);
  constexpr std::pair<std::string_view, Collective> names[] = {
      {"all_reduce_barrier", Collective::barrier},
      {"barrier", Collective::barrier},
      {"all_reduce", Collective::all_reduce},
      {"allreduce", Collective::all_reduce},
      {"all_gather", Collective::all_gather},
      {"allgather", Collective::all_gather},
      {"reduce_scatter", Collective::reduce_scatter},
      {"all_to_all", Collective::all_to_all},
      {"alltoall", Collective::all_to_all},
      {"broadcast", Collective::broadcast},
      {"reduce", Collective::reduce},
      {"gather", Collective::gather},
      {"scatter", Collective::scatter}};
  for (const auto& [begin, collective] : names)
    if (name.starts_with(begin)) return collective;
  return std::nullopt;
}

std::optional<DataType> type_of(const std::string& name) {
  constexpr std::pair<std::string_view, DataType> names[] = {
      {"Float", DataType::fp32},  {"Double", DataType::fp64}, {"Int", DataType::int32},
      {"Long", DataType::int64},  {"Half", DataType::fp16},   {"BFloat16", DataType::bf16},
      {"Byte", DataType::uint8},  {"Char", DataType::int8},   {"Short", DataType::int16},
      {"Bool", DataType::boolean}};
  for (const auto& [torch_name, type] : names)
    if (torch_name == name) return type;
  return std::nullopt;
}

std::int64_t elements_of(const Json& sizes) {
  std::int64_t all = 0;
  for (const Json& shape : sizes) {
    std::int64_t elements = 1;
    for (const Json& extent : shape) elements *= integer(extent);
    all += elements;
  }
  return all;
}

// Of the whole buffer, as Call has it. Where only the root has it, from a block.
std::int64_t count_of(Collective collective, const Json& entry, std::size_t ranks) {
  const std::int64_t in = elements_of(entry.at("input_sizes")),
                     out = elements_of(entry.at("output_sizes"));
  const auto blocks = static_cast<std::int64_t>(ranks);
  if (collective == Collective::barrier) return 0;
  if (collective == Collective::gather) return in * blocks;
  if (collective == Collective::scatter) return out * blocks;
  return collective == Collective::all_gather ? out : in;
}

// "send 0->1" and "recv 1<-0".
struct Message {
  bool is_send;
  int from, to;
};
std::optional<Message> message_of(const std::string& name) {
  static const std::regex form(R"((send|recv) (\d{1,7})(?:->|<-)(\d{1,7}))");
  std::smatch found;
  if (!std::regex_search(name, found, form)) return std::nullopt;
  const int own = std::stoi(found[2]), peer = std::stoi(found[3]);
  const bool is_send = found[1] == "send";
  return Message{is_send, is_send ? own : peer, is_send ? peer : own};
}

// What a rank did in one group. `completed`: the number of the last call that had ended.
FlightEntry entry_of(const Json& json, std::size_t ranks, std::int64_t completed) {
  FlightEntry entry;
  const std::string full_name = json.at("profiling_name");
  const std::string name = full_name.substr(full_name.find(':') + 1);
  entry.call.algorithm = Call::not_told;
  const Json& types = json.at("input_dtypes");
  const std::string type_name = types.empty() ? "Byte" : types[0].get<std::string>();
  const auto type = type_of(type_name);
  entry.call.type = type.value_or(DataType::uint8);
  if (!type) entry.call.label = Label("elements of the type " + type_name);
  entry.sequence = static_cast<std::uint64_t>(integer(json.at("collective_seq_id")));
  entry.began_ns = integer(json.at("time_created_ns"));
  const auto message = message_of(name);
  if (message) {
    entry.call.collective = Collective::point_to_point;
    entry.sequence = static_cast<std::uint64_t>(integer(json.at("p2p_seq_id")));
    entry.call.root = message->from, entry.call.peer = message->to;
    entry.waiting_for = message->is_send ? message->to : message->from;
  } else if (const auto collective = collective_of(name)) {
    entry.call.collective = *collective;
  } else {
    entry.call.label = Label(name);
  }
  entry.call.count = static_cast<std::uint64_t>(count_of(entry.call.collective, json, ranks));
  const bool ended = json.at("state") == "completed" || json.at("retired") == true ||
                     (!message && integer(json.at("collective_seq_id")) <= completed);
  entry.state = ended ? FlightEntry::done : FlightEntry::under_way;
  return entry;
}

// A file: the calls of a rank, in all its groups.
struct Record {
  std::filesystem::path file;
  int rank;
  Json json;
};

// The ranks of each group by its name in PyTorch, a number or a hash. A record of gloo does not
// have them: then those that made a call in it.
using Groups = std::map<std::string, std::vector<int>>;

Groups groups_of(const std::vector<Record>& records) {
  Groups groups;
  for (const Record& record : records)
    for (const Json& entry : record.json.at("entries")) {
      const std::string name = entry.at("process_group").at(0);
      const Json& config = record.json.at("pg_config");
      std::vector<int>& ranks = groups[name];
      if (!name.empty() && config.contains(name))
        ranks = ranks_in(config.at(name).at("ranks"));
      else if (std::ranges::find(ranks, record.rank) == ranks.end())
        ranks.push_back(record.rank);
    }
  for (auto& [name, ranks] : groups) std::ranges::sort(ranks);
  return groups;
}

// The header of the flight in an entry's group.
FlightHeader header_of(const Record& record, const Json& entry, const Groups& groups,
                       int job_size) {
  FlightHeader header{.rank = record.rank, .size = job_size};
  const std::string name = entry.at("process_group").at(0), about = entry.at("process_group").at(1);
  if (about == "default_pg") return header;
  const std::vector<int>& ranks = groups.at(name);
  header.rank = static_cast<int>(std::ranges::find(ranks, record.rank) - ranks.begin());
  header.size = static_cast<int>(ranks.size());
  require(header.rank < header.size,
          "rank {} made a call in the group {}, to which it does not belong", record.rank, name);
  const bool is_named = !about.empty() && about != "undefined";
  fmt::format("{}@{}", is_named ? about : "group " + name, fmt::join(ranks, ","))
      .copy(header.group, sizeof header.group - 1);
  return header;
}

// The number of the last call of an entry's group that had ended.
std::int64_t completed_of(const Record& record, const Json& entry) {
  if (!record.json.contains("pg_status")) return 0;
  const Json* const status =
      record.json.at("pg_status").find(fmt::to_string(integer(entry.at("pg_id"))));
  return status == nullptr ? 0 : integer(status->at("last_completed_collective"));
}

std::vector<Flight> flights_of(const Record& record, const Groups& groups, int job_size) {
  std::map<std::string, Flight> flights;  // by group
  for (const Json& entry : record.json.at("entries")) {
    if (entry.at("profiling_name").text().ends_with(":coalesced"))
      continue;  // the bracket around messages that have entries of their own
    const FlightHeader header = header_of(record, entry, groups, job_size);
    Flight& flight = flights[header.group];
    flight.header = header;
    flight.entries.push_back(
        entry_of(entry, static_cast<std::size_t>(header.size), completed_of(record, entry)));
  }
  std::vector<Flight> all;
  for (auto& [name, flight] : flights) all.push_back(std::move(flight));
  return all;
}

// An all_to_all of unequal blocks has another size on each rank, which is no divergence.
void equalise_all_to_all(std::vector<Flight>& flights) {
  std::map<std::pair<std::string_view, std::uint64_t>, std::uint64_t> largest;
  for (const bool read : {true, false})
    for (Flight& flight : flights)
      for (FlightEntry& entry : flight.entries) {
        if (entry.call.collective != Collective::all_to_all) continue;
        auto& count = largest[{flight.header.group, entry.sequence}];
        read ? count = std::max(count, entry.call.count) : entry.call.count = count;
      }
}

}  // namespace

bool is_torch_flight(const std::filesystem::path& file) {
  return std::regex_match(file.filename().string(), name_of_file);
}

std::vector<Flight> read_torch_flights(const std::vector<std::filesystem::path>& files) {
  std::vector<Record> records;
  std::vector<Flight> all;
  const auto read = [](const std::filesystem::path& path) {
    const std::string bytes = read_file(path);
    return bytes.starts_with('{') ? Json::parse(bytes) : read_pickle(bytes);
  };
  int size = 0;
  for (const auto& path : files) size = std::max(size, rank_of(path) + 1);
  std::filesystem::path now;
  try {
    for (const auto& path : files) records.push_back({path, rank_of(path), read(now = path)});
    const Groups groups = groups_of(records);
    for (const Record& record : records) {
      now = record.file;
      std::ranges::move(flights_of(record, groups, size), std::back_inserter(all));
    }
  } catch (const std::exception& e) {
    fail("{} is no flight record of PyTorch that can be read: {}", now.string(), e.what());
  }
  equalise_all_to_all(all);
  return all;
}

}  // namespace ringside::collectives
