// `ringside bench mesh`: every mesh of the ranks, with bytes that are those of the formulas.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0, begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    widest = std::max(widest, end - begin);
    begin = end + 1;
  }
  return widest;
}

}  // namespace

TEST_CASE("bench mesh measures data parallel and tensor parallel ranks beside the formulas") {
  const Outcome outcome =
      run_program({ringside_binary, "bench", "mesh", "-n", "2", "--model", "tiny", "--batch", "1",
                   "--sequence", "16", "--steps", "2", "--json", "-"},
                  {}, Seconds(100));
  REQUIRE(outcome.exit_code == 0);
  CHECK(widest_line(outcome.err) <= 80);
  const auto rows = nlohmann::json::parse(outcome.out);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["mesh"] == "dp=2");
  CHECK(rows[1]["mesh"] == "tp=2");
  for (const auto& row : rows) {
    CAPTURE(row["mesh"]);
    CHECK(row["step_ms"] > 0);
    // Two ranks send the same bytes with every algorithm. The loss is not in the steps.
    for (const char* kind : {"tp_bytes_sent", "dp_bytes_sent"})
      CHECK(row[kind].get<double>() ==
            doctest::Approx(row[std::string("formula_") + kind].get<double>()).epsilon(1e-9));
    // The state counts updates, 4 bytes for each of 39 parameters.
    CHECK(row["held_bytes"].get<double>() ==
          row["formula_held_bytes"].get<double>() + 4 * (4 * 9 + 3));
  }
  CHECK(rows[0]["tp_bytes_sent"] == 0);
  CHECK(rows[1]["dp_bytes_sent"] == 0);
}

TEST_CASE("bench mesh leaves out meshes that cannot divide the model") {
  const Outcome outcome =
      run_program({ringside_binary, "bench", "mesh", "-n", "3", "--model", "tiny", "--batch", "1",
                   "--sequence", "16", "--steps", "1", "--json", "-"},
                  {}, Seconds(100));
  REQUIRE(outcome.exit_code == 0);
  const auto rows = nlohmann::json::parse(outcome.out);
  REQUIRE(rows.size() == 1);  // tiny has 4 heads
  CHECK(rows[0]["mesh"] == "dp=3");
}
