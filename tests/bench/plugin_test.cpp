// `ringside bench --plugin`: a backend from a shared library in the same table, checked before it
// is timed.

#include <filesystem>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "tests/cli/run_program.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

const std::string star = RINGSIDE_STAR, wrong_star = RINGSIDE_WRONG_STAR;

Outcome bench_with(const std::string& plugin, std::vector<std::string> more) {
  std::vector<std::string> command = {ringside_binary, "bench", "all_reduce", "--plugin", plugin,
                                      "--backends",    "tcp",   "--repeat",   "3"};
  command.insert(command.end(), more.begin(), more.end());
  return run_program(command);
}

}  // namespace

TEST_CASE("bench --plugin: a collective that is no schedule stands in the table and the plot") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("plugin-{}", ::getpid());
  std::filesystem::create_directories(folder);
  const Outcome outcome = bench_with(star, {"-n", "2,3,4", "--bytes", "4B,4KB,100KB", "--json",
                                            folder / "rows.json", "--svg", folder / "plot.svg"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(outcome.survivors == "");
  const auto rows = Json::parse(read_file(folder / "rows.json"));
  int of_star = 0;
  for (const auto& row : rows) {
    CHECK(row["wrong"] == 0);
    of_star += row["backend"] == "star" && row["algorithm"] == "plugin" && row["time_us"] > 0;
  }
  CHECK(of_star == 9);
  CHECK(contains(read_file(folder / "plot.svg"), ">star<"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("bench --plugin: a wrong sum is refused with rank, element and both values") {
  const Outcome outcome = bench_with(wrong_star, {"-n", "3", "--bytes", "8B,4KB"});
  CHECK(outcome.exit_code == 1);
  CAPTURE(outcome.err);
  // 8 bytes have no element 2: that size is right, and the next is refused.
  CHECK(contains(outcome.out, "        8 wrong_star"));
  CHECK_FALSE(contains(outcome.out, "     4000 "));
  CHECK(contains(
      outcome.err,
      "the plugin wrong_star is wrong: after an all_reduce of 1000 elements, element 2 is "));
  CHECK(contains(outcome.err, " on rank "));
  CHECK(contains(outcome.err, ", expected "));
}

TEST_CASE("bench --plugin: a file that is no plugin, and a call that it does not have") {
  CHECK(contains(bench_with("missing.so", {"-n", "2"}).err,
                 "ringside: cannot load the backend missing.so: "));
  CHECK(contains(bench_with(RINGSIDE_NO_BACKEND, {"-n", "2"}).err, RINGSIDE_NO_BACKEND
                 " has no backend: expected a variable "
                 "ringside_backend, as shown in collectives/backends/plugin.hpp"));
  CHECK(contains(bench_with(star, {"-n", "2", "--type", "fp64", "--bytes", "8B"}).err,
                 "the star has only all_reduce of fp32, not all_reduce of "));
}
