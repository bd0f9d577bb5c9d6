// Simulated faults, from the command line:
//
//     simulated_faults --seed 29          what the seed draws, what each rank does, how each ends
//     simulated_faults --seeds 1000       a thousand jobs, from --seed on; those that do not hold
//     gdb --args simulated_faults --seed 29      the same job again (docs/debugging.md)
//
// The exit status is 1 if something does not hold (faults.hpp).
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "tests/collectives/simulation/faults.hpp"

namespace ringside::collectives {
namespace {

void print_job(const FaultyJob& job) {
  fmt::print("seed {}: {} ranks. The seed draws {}\n", job.seed, job.ranks,
             job.faults.empty() ? "no fault." : "these faults:");
  for (const std::string& fault : job.faults) fmt::print("  {}\n", fault);
  fmt::print("\n{:>10}  {:12}  what happens\n", "time", "who");
  for (const auto& line : job.lines) {
    const Seconds time = line.time - Simulation::begin();
    fmt::print("{:>7.3f} ms  {:12}  {}\n", 1e3 * time.count(), line.who, line.text);
  }
  fmt::print("\nHow the ranks end:\n");
  for (std::size_t r = 0; r < job.ends.size(); ++r) fmt::print("  rank {}: {}\n", r, job.ends[r]);
}

void simulate_as_drawn(std::uint64_t first, std::uint64_t seeds) {
  const auto start = Clock::now();
  std::uint64_t failed = 0, with_errors = 0;
  Seconds longest{0};
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const FaultyJob job = simulate_faults(seed);
    if (seeds == 1) print_job(job);
    with_errors +=
        std::ranges::any_of(job.ends, [](const std::string& end) { return end != "ended well"; });
    longest = std::max(longest, job.time);
    if (job.broken.empty()) continue;
    ++failed;
    fmt::print("\nseed {} does not hold:\n", seed);
    for (const std::string& what : job.broken) fmt::print("  {}\n", what);
    std::fflush(stdout);
  }
  if (seeds == 1) {
    require(failed == 0, "seed {} does not hold. The same command replays it, also in gdb", first);
    fmt::print("\nAll holds: ranks end in time, name the rank at fault, and close everything.\n");
    return;
  }
  fmt::print(
      "{} seeds from {} on in {:.0f} s: {} jobs with a rank that does not end well, the longest of "
      "{:.1f} simulated seconds\n",
      seeds, first, seconds_since(start), with_errors, longest.count());
  require(failed == 0, "{} of {} seeds do not hold: replay one with --seed", failed, seeds);
}

void run(int count, char** arguments) {
  std::uint64_t seed = 1, seeds = 1;
  for (int i = 1; i < count; i += 2) {
    const std::string_view option = arguments[i], value = i + 1 < count ? arguments[i + 1] : "";
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    require((option == "--seed" || option == "--seeds") && number > 0 &&
                end == value.data() + value.size() && error == std::errc(),
            "expected --seed N or --seeds COUNT with a number from 1 on, found {} {}", option,
            value);
    (option == "--seed" ? seed : seeds) = number;
  }
  simulate_as_drawn(seed, seeds);
}

}  // namespace
}  // namespace ringside::collectives

int main(int count, char** arguments) {
  try {
    ringside::collectives::run(count, arguments);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "simulated_faults: {}\n", error.what());
    return 1;
  }
}
