#include "collectives/selection/calibration.hpp"

#include <atomic>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <thread>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/environment.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/execution/make_executor.hpp"
#include "collectives/transport/announcements.hpp"
#include "collectives/transport/shm/announcement.hpp"

namespace ringside::collectives {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// A value in the file: its key, the member that it sets, and its unit in seconds.
template <class Of>
struct Field {
  const char* key;
  double Of::*value;
  double unit;
};
using PerByte = MachineCosts::PerByte;
constexpr Field<CostParameters> common_fields[] = {
    {"alpha_us", &CostParameters::alpha, 1e-6},
    {"turn_us", &CostParameters::turn, 1e-6},
    {"overhead_us", &CostParameters::overhead, 1e-6}};
constexpr Field<PerByte> byte_fields[] = {{"beta_ns_per_byte", &PerByte::beta, 1e-9},
                                          {"copy_ns_per_byte", &PerByte::copy, 1e-9},
                                          {"gamma_ns_per_byte", &PerByte::gamma, 1e-9}};

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

int cores_here() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// What identifies the entry of this machine for a transport.
Json key_of(std::string_view transport) {
  return {{"transport", transport}, {"host", host_name()}, {"cores", cores_here()}};
}

bool matches(const Json& entry, const Json& key) {
  for (const auto& [name, value] : key.items())
    if (!entry.contains(name) || entry.at(name) != value) return false;
  return true;
}

double time_in(const Json& value, const char* key) {
  const double number = value.get<double>();
  require(std::isfinite(number) && number >= 0 && number < 1e9, "{} is {}, which is no time", key,
          number);
  return number;
}

MachineCosts costs_from(const Json& entry, MachineCosts costs) {
  for (const auto& field : common_fields)
    costs.common.*field.value = time_in(entry.at(field.key), field.key) * field.unit;
  const Json lengths = MachineCosts::lengths;
  require(entry.at("buffer_bytes") == lengths, "it was measured with other buffer lengths");
  for (const auto& field : byte_fields)
    for (std::size_t i = 0; i < lengths.size(); ++i)
      costs.per_byte[i].*field.value = time_in(entry.at(field.key).at(i), field.key) * field.unit;
  return costs;
}

Json entry_of(const Json& key, const MachineCosts& costs) {
  Json entry = key;
  for (const auto& field : common_fields) entry[field.key] = costs.common.*field.value / field.unit;
  entry["buffer_bytes"] = MachineCosts::lengths;
  for (const auto& field : byte_fields)
    for (const PerByte& per_byte : costs.per_byte)
      entry[field.key].push_back(per_byte.*field.value / field.unit);
  return entry;
}

// The entries of the file; none if it does not exist. Throws if its content is invalid.
Json read_entries(const fs::path& path) {
  std::ifstream file(path);
  if (path.empty() || !file) return Json::array();
  const Json content = Json::parse(file);
  const Json& entries = content.at("entries");
  require(entries.is_array(), "\"entries\" is not a list");
  return entries;
}

void warn_once(const fs::path& path, const std::string& why) {
  static std::atomic<bool> warned = false;
  if (warned.exchange(true)) return;
  fmt::print(stderr,
             "ringside: {} is invalid ({}), so built-in costs are used; ringside bench --calibrate "
             "writes a new file\n",
             path.string(), why);
}

}  // namespace

fs::path calibration_file() {
  const fs::path name = fs::path("ringside") / "calibration.json";
  if (const auto cache = environment("XDG_CACHE_HOME")) return *cache / name;
  if (const auto home = environment("HOME")) return fs::path(*home) / ".cache" / name;
  return {};
}

MachineCosts built_in_costs(std::string_view transport) {
  MachineCosts costs{
      .common = {.alpha = 8e-6, .overhead = 5.5e-6, .turn = 18e-6, .slice_bytes = 256 * 1024},
      .per_byte = {
          {0.2e-9, 0.08e-9, 0.02e-9}, {0.33e-9, 0.16e-9, 0.025e-9}, {1.0e-9, 0.4e-9, 0.08e-9}}};
  if (transport == "shm")
    costs = {
        .common = {.alpha = 0.6e-6, .overhead = 0.5e-6, .turn = 1.9e-6, .slice_bytes = 128 * 1024},
        .per_byte = {{0.14e-9, 0.06e-9, 0.02e-9},
                     {0.17e-9, 0.09e-9, 0.025e-9},
                     {0.55e-9, 0.22e-9, 0.08e-9}}};
  if (transport == "shm") costs.common.announced_bytes = announced_bytes_in_a_round;
  if (transport == "threads")
    costs = {
        .common = {.alpha = 16e-6, .overhead = 8e-6, .turn = 5e-6, .slice_bytes = 256 * 1024},
        .per_byte = {
            {0.1e-9, 0.03e-9, 0.02e-9}, {0.1e-9, 0.05e-9, 0.025e-9}, {0.42e-9, 0.18e-9, 0.08e-9}}};
  costs.common.cores = cores_here();
  return costs;
}

MachineCosts costs_here(std::string_view transport) {
  const MachineCosts built_in = built_in_costs(transport);
  const fs::path path = calibration_file();
  try {
    const Json key = key_of(transport);
    for (const Json& entry : read_entries(path))
      if (matches(entry, key)) return costs_from(entry, built_in);
  } catch (const Json::exception&) {
    warn_once(path, "it is not the JSON of a calibration");
  } catch (const std::exception& error) {
    warn_once(path, error.what());
  }
  return built_in;
}

void keep_calibration(const std::map<std::string, MachineCosts>& measured) {
  const fs::path path = calibration_file();
  require(!path.empty(), "there is no folder for the calibration file: set HOME or XDG_CACHE_HOME");
  Json entries = Json::array();
  const auto replaced = [&](const Json& entry) {
    return std::any_of(measured.begin(), measured.end(),
                       [&](const auto& one) { return matches(entry, key_of(one.first)); });
  };
  try {
    for (const Json& entry : read_entries(path))
      if (!replaced(entry)) entries.push_back(entry);
  } catch (const std::exception&) {
    entries = Json::array();  // invalid: write a new file
  }
  for (const auto& [transport, costs] : measured)
    entries.push_back(entry_of(key_of(transport), costs));

  const fs::path beside = path.string() + fmt::format(".{}", ::getpid());
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream file(beside);
  file << Json{{"entries", entries}}.dump(2) << "\n";
  file.close();
  const bool written = !file.fail();
  if (written) fs::rename(beside, path, error);
  if (!written || error) {
    std::error_code ignored;
    fs::remove(beside, ignored);
    fail(
        "cannot write the calibration to {}: make the folder writable, or set XDG_CACHE_HOME to "
        "another one",
        path.string());
  }
}

AlgorithmSelection agree_on_costs(Connections& connections, const ExecutorOptions& executor,
                                  AlgorithmSelection algorithms, int hosts) {
  Transport& transport = *connections.transport;
  MachineCosts costs;
  if (transport.rank() == 0) {
    costs = algorithms.costs() ? *algorithms.costs() : costs_here(transport.name());
    if (!algorithms.costs()) costs.common.cores *= std::max(1, hosts);
    costs.common.slice_bytes =
        executor.slice_bytes > 0 ? executor.slice_bytes : transport.slice_bytes();
    const Announcements* const announcements = transport.announcements();
    costs.common.announced_bytes = announcements ? announcements->bytes_in_a_round() : 0;
  }
  const Algorithm& tree = find_algorithm(Collective::broadcast, "binomial");
  Call call{.collective = Collective::broadcast,
            .type = DataType::uint8,
            .count = sizeof costs,
            .label = Label("what messages cost")};
  call.algorithm = number_of(tree);
  auto* bytes = reinterpret_cast<std::byte*>(&costs);
  const Schedule schedule = tree.make(transport.size(), transport.rank(), 0);
  make_executor(transport, *connections.control, executor)
      ->run({schedule, call, 0, Chunks::even(sizeof costs, 1), {bytes, {0, 1}, bytes, {0, 1}}});
  transport.reset_traffic();
  algorithms.set_costs(costs);
  return algorithms;
}

}  // namespace ringside::collectives
