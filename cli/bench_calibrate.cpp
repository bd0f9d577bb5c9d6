#include "cli/bench_calibrate.hpp"

#include <algorithm>
#include <thread>

#include "base/clock.hpp"
#include "cli/command.hpp"
#include "collectives/calibration.hpp"
#include "collectives/reduce.hpp"

namespace ringside::cli {
namespace {

using collectives::Collective;
using collectives::CostParameters;
using collectives::DataType;

constexpr std::uint64_t few = 64, many = 4000000;  // bytes of the whole buffer
constexpr int most_ranks = 16;

int cores_here() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

double seconds_of(const std::vector<Json>& rows, const std::string& backend, int ranks, const char* algorithm, std::uint64_t bytes) {
  for (const Json& row : rows) {
    const bool same_size = (row.at("bytes").get<std::uint64_t>() > few) == (bytes > few);
    if (row.at("backend") == backend && row.at("ranks") == ranks && row.at("algorithm") == algorithm && same_size)
      return row.at("time_us").get<double>() * 1e-6;
  }
  fail("nothing was measured for {} with {} ranks", backend, ranks);
}

// Seconds per byte of adding `bytes` bytes to as many, over and over: the best of several tries.
double seconds_per_byte_added(std::size_t bytes) {
  std::vector<float> ours(bytes / sizeof(float), 1.0f), theirs(ours);
  const auto add = [&] {
    collectives::combine(DataType::fp32, collectives::ReduceOp::sum, ours.data(), ours.data(), theirs.data(), ours.size());
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

// "recursive_doubling below 128 KiB, ring from there on"
std::string choices_in_words(Collective collective, const CostParameters& costs, int ranks) {
  collectives::AlgorithmChoice choice;
  choice.set_costs(costs);
  std::string words;
  std::string_view last;
  for (std::uint64_t bytes = 4; bytes <= (1u << 30); bytes *= 2) {
    const std::string_view name = choice.choose(collective, bytes / 4, DataType::fp32, ranks).name;
    if (name == last) continue;
    if (!last.empty()) words += fmt::format(" below {}, ", bytes < 1024        ? fmt::format("{} B", bytes)
                                                         : bytes < (1u << 20) ? fmt::format("{} KiB", bytes >> 10)
                                                                              : fmt::format("{} MiB", bytes >> 20));
    words += name;
    last = name;
  }
  return words;
}

}  // namespace

CostParameters solve_costs(const CalibrationTimes& times, int cores) {
  const double p = times.ranks, c = cores, crowd = std::max(0.0, p / c - 1), links = p - 1;
  const double b = static_cast<double>(times.many) / 2, all_bytes = links * static_cast<double>(times.many);
  CostParameters costs;
  costs.cores = cores;
  costs.alpha = times.pair_few;
  // Either the cores are busy with all ranks' messages, or each rank's way out with its own: it can be no more than either allows.
  const double by_cores = times.direct_few * std::min(c, p) / (2 * p * links), by_rank = std::max(0.0, times.direct_few - costs.alpha) / (p - 2);
  costs.overhead = std::min({by_cores, std::max(by_rank, costs.alpha / 100), costs.alpha});
  costs.turn = crowd > 0 ? std::max(0.0, times.ring_few / links - costs.alpha) / crowd : 0;
  costs.beta = std::max(0.0, times.pair_many - costs.alpha) / b;
  costs.copy = times.ring_many * std::min(c, p) / (2 * all_bytes);
  return costs;
}

void plan_calibration(BenchPlan& plan, bool ranks_given) {
  const int crowd = ranks_given ? *std::max_element(plan.ranks.begin(), plan.ranks.end()) : std::clamp(3 * cores_here(), 4, most_ranks);
  if (crowd < 3) throw UsageError("--calibrate compares 2 ranks with more: -n 3 at least, better more than there are cores");
  for (const auto& name : plan.backends)
    if (name != "tcp" && name != "shm" && name != "threads")
      throw UsageError(fmt::format("--calibrate is for tcp, shm and threads, not for {}: a library chooses for itself", name));
  plan.collective = Collective::all_gather;
  plan.algorithms = {"ring", "direct"};
  plan.type = DataType::fp32;
  plan.ranks = {2, crowd};
  plan.bytes = {few, many};
  plan.limits = false;
  plan.repeat = plan.repeat.value_or(28);
}

AddCosts measure_adding() { return {seconds_per_byte_added(64 * 1024), seconds_per_byte_added(64 << 20)}; }

std::map<std::string, CostParameters> costs_from_rows(const BenchPlan& plan, const std::vector<Json>& rows, const AddCosts& adding) {
  std::map<std::string, CostParameters> found;
  const int crowd = plan.ranks.back();
  for (const auto& backend : plan.backends) {
    CalibrationTimes times{.ranks = crowd, .many = many};
    times.pair_few = seconds_of(rows, backend, 2, "ring", few);
    times.pair_many = seconds_of(rows, backend, 2, "ring", many);
    times.ring_few = seconds_of(rows, backend, crowd, "ring", few);
    times.direct_few = seconds_of(rows, backend, crowd, "direct", few);
    times.ring_many = seconds_of(rows, backend, crowd, "ring", many);
    CostParameters costs = solve_costs(times, cores_here());
    costs.gamma = adding.in_cache;  // a slice is added while it is warm
    costs.slice_bytes = collectives::built_in_costs(backend).slice_bytes;
    found[backend] = costs;
  }
  return found;
}

std::string calibration_report(const std::map<std::string, CostParameters>& costs, const AddCosts& adding, int ranks) {
  std::string text = fmt::format("{:<9} {:>11} {:>10} {:>14} {:>12} {:>12}\n", "", "alpha (us)", "turn (us)", "overhead (us)",
                                 "beta (ns/B)", "copy (ns/B)");
  for (const auto& [transport, c] : costs)
    text += fmt::format("{:<9} {:>11.2f} {:>10.2f} {:>14.2f} {:>12.3f} {:>12.3f}\n", transport, c.alpha * 1e6, c.turn * 1e6, c.overhead * 1e6,
                        c.beta * 1e9, c.copy * 1e9);
  text += fmt::format(
      "\nA message of b bytes takes alpha + beta b from hand to hand, and turn longer for each further rank on a core; it keeps a core busy for\n"
      "overhead + copy b at either end. To add a byte to another takes gamma = {:.3f} ns in cache, {:.3f} ns from memory.\n\n"
      "Hence, of fp32:\n",
      adding.in_cache * 1e9, adding.in_memory * 1e9);
  for (const auto& [transport, c] : costs)
    for (const int n : {4, ranks})
      if (n == 4 || ranks != 4)
        for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather})
          text += fmt::format("  {:<8} {} ranks  {:<15} {}\n", transport, n, name_of(collective), choices_in_words(collective, c, n));
  return text;
}

}  // namespace ringside::cli
