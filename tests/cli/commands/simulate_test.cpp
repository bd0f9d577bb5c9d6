// `ringside simulate` as a user sees it.
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/report/markup.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside::testing;

namespace {

Outcome simulate(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {ringside_binary, "simulate"});
  return run_program(arguments);
}

}  // namespace

TEST_CASE("an all-reduce on 1024 ranks: table, JSON and page have the same figures") {
  const TemporaryDirectory directory;
  const std::string page = (directory.path() / "curves.html").string(),
                    figures = (directory.path() / "figures.json").string();
  const Outcome outcome = simulate({"all_reduce", "-n", "8,1024", "--bytes", "1KB,1MB,1GB",
                                    "--topology", "h100", "--json", figures, "--html", page});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  CHECK(contains(outcome.out, "all_reduce on 8 ranks of h100, over NVLink; times from the walked"));
  CHECK(contains(outcome.out, "all_reduce on 1024 ranks of h100, over InfiniBand"));
  for (const std::string& line : sorted_lines(outcome.out)) {
    CAPTURE(line);
    CHECK((line.size() <= 80 || contains(line, "report: ")));
  }
  const auto json = nlohmann::json::parse(read_file(figures));
  REQUIRE(json.size() == 2 * 3 * 3);
  // 2 (n - 1) messages of 6 us and D/n bytes at 45 GB/s.
  const auto& ring = json.at(9 + 6);
  CHECK(ring.at("algorithm") == "ring");
  CHECK(ring.at("bytes") == 1'000'000'000);
  CHECK(ring.at("time_us").get<double>() ==
        doctest::Approx(2 * 1023 * 6 + 2 * 1023.0 / 1024 * 1e9 / 45e9 * 1e6).epsilon(1e-9));
  CHECK(ringside::tests::what_is_malformed(read_file(page)) == "");
  CHECK(contains(read_file(page), "<h2>Bus bandwidth, 1024 ranks over InfiniBand</h2>"));
}

TEST_CASE("what cannot be simulated gets one sentence") {
  const auto error_of = [](const std::vector<std::string>& arguments) {
    const Outcome outcome = simulate(arguments);
    CHECK(outcome.exit_code != 0);
    CHECK(outcome.out == "");
    return outcome.err;
  };
  CHECK(contains(error_of({"broadcast"}), "there is no simulation of 'broadcast' yet"));
  CHECK(contains(error_of({"all_reduce", "--algorithm", "rung"}),
                 "there is no algorithm named 'rung' for all_reduce"));
  CHECK(contains(error_of({"all_reduce", "-n", "100000"}),
                 "the plan needs 100000 devices, but h100 has 16384"));
  CHECK(contains(error_of({"all_reduce", "--bytes", "many"}), "'many' is not a number of bytes"));
  CHECK(contains(error_of({"all_reduce", "--topology", "moon"}), "there is no machine or file"));
}
