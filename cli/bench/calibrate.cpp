#include "cli/bench/calibrate.hpp"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "cli/launcher/exit.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/table.hpp"
#include "collectives/execution/reduce.hpp"
#include "collectives/selection/calibration.hpp"

namespace ringside::cli {
namespace {

using collectives::Collective;
using collectives::CostParameters;
using collectives::DataType;
using collectives::MachineCosts;

constexpr std::uint64_t few = 64;  // bytes of the whole buffer; many: MachineCosts::lengths
constexpr std::size_t lengths = std::size(MachineCosts::lengths);
constexpr int most_ranks = 16;

int cores_here() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// A measured buffer may be a little smaller than requested: it must divide by the number of ranks.
double seconds_of(const Json& rows, const std::string& backend, int ranks, const char* algorithm,
                  std::uint64_t bytes) {
  for (const Json& row : rows) {
    const double measured = row.at("bytes").get<double>(), wanted = static_cast<double>(bytes);
    if (row.at("backend") == backend && row.at("ranks") == ranks &&
        row.at("algorithm") == algorithm && measured <= wanted && measured > wanted / 2)
      return row.at("time_us").get<double>() * 1e-6;
  }
  fail("nothing was measured for {} with {} ranks", backend, ranks);
}

// Seconds per byte to add two buffers of `bytes` bytes, repeatedly: the best of several tries.
double seconds_per_byte_added(std::size_t bytes) {
  std::vector<float> ours(bytes / sizeof(float), 1.0f), theirs(ours);
  const auto add = [&] {
    collectives::combine(DataType::fp32, collectives::ReduceOp::sum, ours.data(), ours.data(),
                         theirs.data(), ours.size());
  };
  const int repeat = std::max(1, static_cast<int>((16u << 20) / bytes));
  double best = 1;
  add();
  for (int i = 0; i < 7; ++i) {
    const auto start = Clock::now();
    for (int r = 0; r < repeat; ++r) add();
    best = std::min(best, seconds_since(start) / repeat);
  }
  return best / static_cast<double>(bytes);
}

// Adds a row for each algorithm that these costs select, from few bytes to many.
void add_selection(Table& table, const std::string& transport, Collective collective,
                   const MachineCosts& costs, int ranks) {
  collectives::AlgorithmSelection selection;
  selection.set_costs(costs);
  std::string_view last;
  for (std::uint64_t bytes = 4; bytes <= (1u << 30); bytes *= 2) {
    const std::string_view name =
        selection.choose(collective, bytes / 4, DataType::fp32, ranks).name;
    if (name == std::exchange(last, name)) continue;
    table.rows.push_back({transport, ranks, name_of(collective), name, bytes});
  }
}

}  // namespace

MachineCosts solve_costs(const CalibrationTimes& times, int cores) {
  const double p = times.ranks, c = std::min<double>(cores, p),
               crowd = std::max(0.0, p / cores - 1), links = p - 1;
  MachineCosts costs;
  CostParameters& common = costs.common;
  common.cores = cores;
  common.alpha = times.pair_few;
  // Either the cores are busy with the messages of all ranks, or each rank with its own. The
  // overhead is at most what either bound allows.
  const double by_cores = times.direct_few * c / (2 * p * links),
               by_rank = (times.direct_few - common.alpha) / (p - 2);
  common.overhead = std::min({by_cores, std::max(by_rank, by_cores / 10), common.alpha});
  common.turn = crowd > 0 ? std::max(0.0, times.ring_few / links - common.alpha) / crowd : 0;
  for (std::size_t i = 0; i < lengths; ++i) {
    const double buffer = static_cast<double>(MachineCosts::lengths[i]);
    costs.per_byte[i].beta = std::max(0.0, times.pair_many[i] - times.pair_few) / (buffer / 2);
    costs.per_byte[i].copy =
        std::max(0.0, times.ring_many[i] - times.ring_few) * c / (2 * links * buffer);
  }
  return costs;
}

void set_up_calibration(BenchOptions& options) {
  const int crowd = options.ranks.empty()
                        ? std::clamp(3 * cores_here(), 4, most_ranks)
                        : *std::max_element(options.ranks.begin(), options.ranks.end());
  if (crowd < 3)
    throw UsageError(
        "--calibrate compares 2 ranks with more: give -n 3 or more, best more ranks than cores");
  for (const auto& name : options.backends)
    if (name != "tcp" && name != "shm" && name != "threads")
      throw UsageError(
          fmt::format("--calibrate is for tcp, shm and threads, not for {}: a library selects its "
                      "algorithms itself",
                      name));
  options.collective = Collective::all_gather;
  options.algorithms = {"ring", "direct"};
  options.type = DataType::fp32;
  options.ranks = {2, crowd};
  options.bytes = {few};
  options.bytes.insert(options.bytes.end(), std::begin(MachineCosts::lengths),
                       std::end(MachineCosts::lengths));
  options.limits = false;
  options.repeat = options.repeat.value_or(28);
  options.quantile = 0.25;  // disturbances make samples slower, never faster
}

std::array<double, 3> measure_adding() {
  std::array<double, 3> seconds{};
  for (std::size_t i = 0; i < lengths; ++i)
    seconds[i] = seconds_per_byte_added(MachineCosts::lengths[i]);
  return seconds;
}

std::map<std::string, MachineCosts> costs_from_rows(const BenchOptions& options, const Json& rows,
                                                    const std::array<double, 3>& adding) {
  std::map<std::string, MachineCosts> found;
  for (const auto& backend : options.backends) {
    const auto seconds = [&](int ranks, const char* algorithm, std::uint64_t bytes) {
      return seconds_of(rows, backend, ranks, algorithm, bytes);
    };
    CalibrationTimes times;
    times.ranks = options.ranks.back();
    times.pair_few = seconds(2, "ring", few);
    times.ring_few = seconds(times.ranks, "ring", few);
    times.direct_few = seconds(times.ranks, "direct", few);
    for (std::size_t i = 0; i < lengths; ++i) {
      times.pair_many[i] = seconds(2, "ring", MachineCosts::lengths[i]);
      times.ring_many[i] = seconds(times.ranks, "ring", MachineCosts::lengths[i]);
    }
    MachineCosts costs = solve_costs(times, cores_here());
    for (std::size_t i = 0; i < lengths; ++i) costs.per_byte[i].gamma = adding[i];
    const CostParameters built_in = collectives::built_in_costs(backend).common;
    costs.common.slice_bytes = built_in.slice_bytes;
    costs.common.announced_bytes = built_in.announced_bytes;
    found[backend] = costs;
  }
  return found;
}

std::string calibration_report(const std::map<std::string, MachineCosts>& costs, int ranks) {
  Table table{{words("", "", 28), words("", "", 5)}};
  table.indent = 0;
  for (const auto& [transport, c] : costs) table.head.push_back(number(transport, "", fixed(3), 9));
  const auto row = [&](const std::string& name, const char* unit, double scale, auto value_of) {
    std::vector<Cell>& cells = table.rows.emplace_back(std::vector<Cell>{name, unit});
    for (const auto& [transport, c] : costs) cells.push_back(value_of(c) * scale);
  };
  for (const auto& [name, value] : {std::pair("alpha", &CostParameters::alpha),
                                    {"turn", &CostParameters::turn},
                                    {"overhead", &CostParameters::overhead}})
    row(name, "us", 1e6, [&, value = value](const auto& c) { return c.common.*value; });
  using PerByte = MachineCosts::PerByte;
  for (const auto& [name, value] :
       {std::pair("beta", &PerByte::beta), {"copy", &PerByte::copy}, {"gamma", &PerByte::gamma}})
    for (std::size_t i = 0; i < lengths; ++i)
      row(fmt::format("{}, buffers of {}", name, bytes_to_text(MachineCosts::lengths[i])), "ns/B",
          1e9, [&, value = value](const auto& c) { return c.per_byte[i].*value; });
  Table selected{{words("transport"), number("ranks", ""), words("collective"), words("algorithm"),
                  number("from (B)", "")}};
  for (const auto& [transport, c] : costs)
    for (const int n : std::set<int>{4, ranks})
      for (const Collective collective :
           {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather})
        add_selection(selected, transport, collective, c, n);
  return table.text() +
         "\nA message of b bytes takes alpha + beta b, and turn more for each additional\n"
         "rank on a core. It occupies a core for overhead + copy b at each end. Adding b\n"
         "bytes takes gamma b.\n"
         "\nSelected algorithms for fp32:\n" +
         selected.text();
}

}  // namespace ringside::cli
