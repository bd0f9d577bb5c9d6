// `ringside simulate faults`: a job on a simulated network and clock, with faults that a seed
// draws.

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "collectives/simulation/faults.hpp"

namespace ringside::cli {
namespace {

using collectives::FaultyJob;

struct FaultsArguments {
  std::uint64_t seed = 1, seeds = 1;
  int ranks = 0;
};

void print_job(const FaultyJob& job) {
  fmt::print("seed {}: {} ranks. The seed draws {}\n", job.seed, job.ranks,
             job.faults.empty() ? "no fault." : "these faults:");
  for (const std::string& fault : job.faults) fmt::print("  {}\n", fault);
  fmt::print("\n{:>10}  {:12}  what happens\n", "time", "who");
  for (const auto& line : job.lines) {
    const Seconds time = line.time - collectives::Simulation::begin();
    fmt::print("{:>7.3f} ms  {:12}  {}\n", 1e3 * time.count(), line.who, line.text);
  }
  fmt::print("\nHow the ranks end:\n");
  for (std::size_t r = 0; r < job.ends.size(); ++r) fmt::print("  rank {}: {}\n", r, job.ends[r]);
}

void simulate_as_drawn(const FaultsArguments& args) {
  const auto start = Clock::now();
  std::uint64_t failed = 0, with_errors = 0;
  Seconds longest{0};
  for (std::uint64_t seed = args.seed; seed < args.seed + args.seeds; ++seed) {
    const FaultyJob job = collectives::simulate_faults(seed, args.ranks);
    if (args.seeds == 1) print_job(job);
    with_errors +=
        std::ranges::any_of(job.ends, [](const std::string& end) { return end != "ended well"; });
    longest = std::max(longest, job.time);
    if (job.broken.empty()) continue;
    ++failed;
    fmt::print("\nseed {} does not hold:\n", seed);
    for (const std::string& what : job.broken) fmt::print("  {}\n", what);
    std::fflush(stdout);
  }
  if (args.seeds == 1) {
    require(failed == 0, "seed {} does not hold. The same command replays it, also in gdb",
            args.seed);
    fmt::print("\nAll holds: ranks end in time, name the rank at fault, and close everything.\n");
    return;
  }
  fmt::print(
      "{} seeds from {} on in {:.0f} s: {} jobs with a rank that does not end well, the longest of "
      "{:.1f} simulated seconds\n",
      args.seeds, args.seed, seconds_since(start), with_errors, longest.count());
  require(failed == 0, "{} of {} seeds do not hold: replay one with --seed", failed, args.seeds);
}

}  // namespace

void add_simulate_faults_command(CLI::App& parent) {
  const auto [option, args] = add_command(
      parent, "faults",
      "Run the ranks of a job on a simulated network and clock, with faults that a seed draws",
      simulate_as_drawn);
  option("--seed N", args.seed, "The seed: it draws everything, and replays it [1]");
  option("--seeds COUNT", args.seeds,
         "Run so many seeds, from --seed on, and show only those that do not hold [1]");
  option("-n,--ranks N", args.ranks, "Number of ranks, 2 to 64 [the seed draws 2 to 8]",
         in_range(2, 64));
}

}  // namespace ringside::cli
