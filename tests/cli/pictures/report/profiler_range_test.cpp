// A profiler sees the phases, calls and waits of a training run as NVTX ranges, nested on each
// thread.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/cli/commands/train/training.hpp"
#include "tests/cli/run_program.hpp"

namespace ringside::cli {
namespace {

using testing::Outcome;
using testing::Training;

// Reads the log of the injected library: how often each stack of open ranges occurs, for example
// "backward > all_reduce bucket 0". Fails if a range is closed twice or left open.
std::map<std::string, int> ranges_in(const std::filesystem::path& log) {
  std::map<std::string, std::vector<std::string>> open;  // by thread
  std::map<std::string, int> seen;
  std::ifstream file(log);
  for (std::string event, thread; file >> event >> thread;) {
    auto& stack = open[thread];
    if (event == "pop") {
      REQUIRE(!stack.empty());
      stack.pop_back();
      continue;
    }
    std::string name;
    std::getline(file >> std::ws, name);
    stack.push_back(name);
    ++seen[fmt::format("{}", fmt::join(stack, " > "))];
  }
  for (const auto& [thread, stack] : open) CHECK(stack.empty());
  return seen;
}

}  // namespace

TEST_CASE("a profiler sees the phases, calls and waits of a training run") {
  const Training training({"--steps", "3", "--parallel", "bucketed"});
  const auto log = training.path("ranges");
  const Outcome outcome = training.run(
      {"-n", "2"},
      {{"NVTX_INJECTION64_PATH", RINGSIDE_NVTX_INJECTION}, {"NVTX_INJECTION_LOG", log.string()}});
  CHECK(outcome.err == "");
  REQUIRE(outcome.exit_code == 0);
  const auto seen = ranges_in(log);
  std::string all;
  for (const auto& [name, times] : seen) all += fmt::format("{} x {}\n", times, name);
  CAPTURE(all);
  const auto count = [&](const std::string& name) {
    return seen.contains(name) ? seen.at(name) : 0;
  };
  for (const char* phase : {"forward", "backward", "finish gradients", "optimizer"})
    CHECK(count(phase) == 2 * 3);                // ranks, steps
  CHECK(count("all_reduce bucket 0") == 2 * 3);  // on the group's own thread, beside the phases
  CHECK(count("finish gradients > wait for all_reduce bucket 0") == 2 * 3);
}

}  // namespace ringside::cli
