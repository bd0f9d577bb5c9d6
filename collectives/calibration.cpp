#include "collectives/calibration.hpp"

#include <atomic>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <thread>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/environment.hpp"

namespace ringside::collectives {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// How a value stands in the file: its key, and how many of its unit are a second.
struct Field {
  const char* key;
  double CostParameters::*value;
  double unit;
};
constexpr Field fields[] = {{"alpha_us", &CostParameters::alpha, 1e-6},
                            {"turn_us", &CostParameters::turn, 1e-6},
                            {"overhead_us", &CostParameters::overhead, 1e-6},
                            {"beta_ns_per_byte", &CostParameters::beta, 1e-9},
                            {"copy_ns_per_byte", &CostParameters::copy, 1e-9},
                            {"gamma_ns_per_byte", &CostParameters::gamma, 1e-9}};

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

int cores_here() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

// The machine that an entry speaks of, or is to speak of.
Json key_of(std::string_view transport) { return {{"transport", transport}, {"host", host_name()}, {"cores", cores_here()}}; }

bool matches(const Json& entry, const Json& key) {
  for (const auto& [name, value] : key.items())
    if (!entry.contains(name) || entry.at(name) != value) return false;
  return true;
}

CostParameters costs_from(const Json& entry, CostParameters costs) {
  for (const Field& field : fields) {
    const double value = entry.at(field.key).get<double>();
    require(std::isfinite(value) && value >= 0 && value < 1e9, "{} is {}, and no time", field.key, value);
    costs.*field.value = value * field.unit;
  }
  return costs;
}

// The file's content. Throws where there is a file that is none of ours.
Json read_entries(const fs::path& path) {
  std::ifstream file(path);
  if (path.empty() || !file) return Json::array();
  const Json content = Json::parse(file);
  const Json& entries = content.at("entries");
  require(entries.is_array(), "\"entries\" is no list");
  return entries;
}

void warn_once(const fs::path& path, const std::string& why) {
  static std::atomic<bool> warned = false;
  if (warned.exchange(true)) return;
  fmt::print(stderr, "ringside: {} is not used, because it is broken ({}); built-in values are; ringside bench --calibrate writes it anew\n",
             path.string(), why);
}

}  // namespace

fs::path calibration_file() {
  const fs::path name = fs::path("ringside") / "calibration.json";
  if (const auto cache = environment("XDG_CACHE_HOME")) return *cache / name;
  if (const auto home = environment("HOME")) return fs::path(*home) / ".cache" / name;
  return {};
}

CostParameters built_in_costs(std::string_view transport) {
  CostParameters costs{.alpha = 23e-6, .beta = 0.25e-9, .gamma = 0.05e-9, .overhead = 5.5e-6, .copy = 0.18e-9, .turn = 8e-6};
  costs.slice_bytes = 256 * 1024;
  if (transport == "shm") {
    costs = {.alpha = 0.5e-6, .beta = 0.1e-9, .gamma = 0.04e-9, .overhead = 0.4e-6, .copy = 0.08e-9, .turn = 2e-6};
    costs.slice_bytes = 128 * 1024;
  }
  if (transport == "threads") {
    costs = {.alpha = 32e-6, .beta = 0.08e-9, .gamma = 0.03e-9, .overhead = 10e-6, .copy = 0.06e-9, .turn = 4e-6};
    costs.slice_bytes = 256 * 1024;
  }
  costs.cores = cores_here();
  return costs;
}

CostParameters costs_here(std::string_view transport) {
  const CostParameters built_in = built_in_costs(transport);
  const fs::path path = calibration_file();
  try {
    const Json key = key_of(transport);
    for (const Json& entry : read_entries(path))
      if (matches(entry, key)) return costs_from(entry, built_in);
  } catch (const std::exception& error) {
    warn_once(path, error.what());
  }
  return built_in;
}

void keep_calibration(const std::map<std::string, CostParameters>& measured) {
  const fs::path path = calibration_file();
  require(!path.empty(), "there is no folder to keep the calibration in: set HOME or XDG_CACHE_HOME");
  Json entries = Json::array();
  const auto replaced = [&](const Json& entry) {
    return std::any_of(measured.begin(), measured.end(), [&](const auto& one) { return matches(entry, key_of(one.first)); });
  };
  try {
    for (const Json& entry : read_entries(path))
      if (!replaced(entry)) entries.push_back(entry);
  } catch (const std::exception&) {
    entries = Json::array();  // broken: written anew
  }
  for (const auto& [transport, costs] : measured) {
    Json entry = key_of(transport);
    for (const Field& field : fields) entry[field.key] = costs.*field.value / field.unit;
    entries.push_back(entry);
  }

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
    fail("cannot write the calibration to {}: may you write there? XDG_CACHE_HOME names another folder", path.string());
  }
}

AlgorithmChoice agree_on_costs(Transport& transport, const ExecutorOptions& executor, AlgorithmChoice algorithms, int hosts) {
  CostParameters costs;
  if (transport.rank() == 0) {
    costs = algorithms.costs() ? *algorithms.costs() : costs_here(transport.name());
    if (!algorithms.costs()) costs.cores *= std::max(1, hosts);
    costs.slice_bytes = executor.slice_bytes > 0 ? executor.slice_bytes : transport.slice_bytes();
  }
  const Algorithm& tree = find_algorithm(Collective::broadcast, "binomial");
  Call call{.collective = Collective::broadcast, .type = DataType::uint8, .count = sizeof costs, .label = Label("what messages cost")};
  call.algorithm = static_cast<std::uint8_t>(&tree - all_algorithms().data());
  auto* bytes = reinterpret_cast<std::byte*>(&costs);
  const Plan plan_of_tree = plan(tree.make(transport.size(), transport.rank(), 0), true);
  Executor(transport, executor).run(plan_of_tree, call, 0, Chunks::even(sizeof costs, 1), {bytes, {0, 1}, bytes, {0, 1}});
  algorithms.set_costs(costs);
  return algorithms;
}

}  // namespace ringside::collectives
