#include "bench/calibrate.hpp"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "bench/measured_costs.hpp"
#include "cli/launcher/exit.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/table.hpp"
#include "collectives/selection/algorithm_selection.hpp"

namespace ringside::cli {
namespace {

using collectives::Algorithm;
using collectives::Collective;
using collectives::Correction;
using collectives::CostParameters;
using collectives::CostTable;
using collectives::DataType;
using collectives::MachineCosts;

constexpr std::uint64_t few = 64;  // bytes of the whole buffer; many: MachineCosts::lengths
constexpr std::size_t lengths = std::size(MachineCosts::lengths);
constexpr int most_ranks = 16;

int cores_here() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// A measured buffer may be a little smaller than requested: it must divide by the number of ranks.
double seconds_of(const Json& rows, const std::string& backend, int ranks,
                  std::string_view algorithm, std::uint64_t bytes) {
  for (const Json& row : rows) {
    const double measured = row.at("bytes").get<double>(), wanted = static_cast<double>(bytes);
    if (row.at("backend") == backend && row.at("ranks") == ranks &&
        row.at("algorithm") == algorithm && measured <= wanted && measured > wanted / 2)
      return row.at("time_us").get<double>() * 1e-6;
  }
  fail("nothing was measured for {} with {} ranks", backend, ranks);
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

// What both kinds of calibration have in common.
void set_up(BenchOptions& options) {
  for (const auto& name : options.backends)
    refuse_if(name != "tcp" && name != "shm" && name != "threads",
              "--calibrate is for tcp, shm and threads, not for {}: a library selects its "
              "algorithms itself",
              name);
  options.type = DataType::fp32;
  options.limits = false;
  options.seconds = 0.25;
  options.passes = 2;
}

// More ranks than cores.
int crowd_here() {
  return std::clamp(3 * cores_here(), 4, most_ranks);
}

}  // namespace

void set_up_calibration(BenchOptions& options) {
  const int crowd = options.ranks.empty() ? crowd_here() : *std::ranges::max_element(options.ranks);
  refuse_if(
      crowd < 3,
      "--calibrate compares 2 ranks with more: give -n 3 or more, best more ranks than cores");
  set_up(options);
  options.quantile = 0.25;
  options.collective = Collective::all_gather;
  options.announces = false;  // what is calibrated are messages
  options.algorithms = {"ring", "direct"};
  options.ranks = {2, crowd};
  options.bytes = {few};
  options.bytes.insert(options.bytes.end(), std::begin(MachineCosts::lengths),
                       std::end(MachineCosts::lengths));
}

void set_up_corrections(BenchOptions& options, Collective collective) {
  set_up(options);
  options.collective = collective;
  options.algorithms.clear();
  for (const Algorithm* algorithm : collectives::algorithms_to_select(collective))
    options.algorithms.emplace_back(algorithm->name);
  refuse_if(options.algorithms.size() < 2, "{} has one algorithm: there is nothing to calibrate",
            name_of(collective));
  if (options.ranks.empty()) {
    const std::set<int> ranks{2, 3, 4, crowd_here()};
    options.ranks.assign(ranks.begin(), ranks.end());
  }
  options.bytes.assign(std::begin(Correction::lengths), std::end(Correction::lengths));
}

CostTable costs_from_rows(const BenchOptions& options, const Json& rows,
                          const std::array<double, 3>& adding) {
  CostTable found;
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

CostTable corrected_by_rows(const BenchOptions& options, const Json& rows) {
  CostTable found;
  for (const auto& backend : options.backends) {
    MachineCosts costs = collectives::costs_here(backend);
    for (const int ranks : options.ranks)
      for (const auto& name : options.algorithms) {
        const Algorithm& algorithm = collectives::find_algorithm(options.collective, name);
        Correction now{.algorithm = number_of(algorithm),
                       .ranks = static_cast<std::uint64_t>(ranks)};
        for (std::size_t i = 0; i < std::size(now.factors); ++i) {
          const std::uint64_t bytes = Correction::lengths[i];
          now.factors[i] = std::clamp(seconds_of(rows, backend, ranks, name, bytes) /
                                          costs.uncorrected_seconds_of(algorithm, ranks, bytes),
                                      0.01, 100.0);
        }
        std::erase_if(costs.corrections, [&](const Correction& before) {
          return before.algorithm == now.algorithm && before.ranks == now.ranks;
        });
        costs.corrections.push_back(now);
      }
    found[backend] = costs;
  }
  return found;
}

std::string corrections_report(const BenchOptions& options, const CostTable& costs) {
  std::string report =
      fmt::format("Measured time of {} / the time by the model:\n", name_of(options.collective));
  for (const auto& [transport, c] : costs)
    for (const int ranks : options.ranks) {
      Table table{{words(fmt::format("{}, {} ranks", transport, ranks), "", 18)}};
      for (const std::uint64_t bytes : Correction::lengths)
        table.head.push_back(number(bytes_to_text(bytes), "", fixed(2), 6));
      for (const auto& name : options.algorithms) {
        const Algorithm& algorithm = collectives::find_algorithm(options.collective, name);
        std::vector<Cell>& cells = table.rows.emplace_back(std::vector<Cell>{name});
        for (const std::uint64_t bytes : Correction::lengths)
          cells.push_back(c.correction(algorithm, ranks, bytes));
      }
      report += "\n" + table.text();
    }
  return report;
}

std::string calibration_report(const CostTable& costs, int ranks) {
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
