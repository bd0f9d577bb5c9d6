// `ringside bench mesh`: every mesh of the ranks, with bytes that are those of the formulas.
#include <cmath>

#include <doctest/doctest.h>

#include "tests/bench/run_bench.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

BenchOutcome bench_mesh(std::vector<std::string> options) {
  options.insert(options.end(), {"--sequence", "16", "--steps", "2"});
  return run_bench("mesh", options);
}

// Whether what was sent is what the formula says, but for the few numbers of the norm and the loss.
// Two ranks send the same bytes with every algorithm; more may take one that sends others. Messages
// between stages have one algorithm.
void check_bytes(const Json& row, const std::string& axis) {
  CAPTURE(row["mesh"]);
  CAPTURE(axis);
  const auto sent = row[axis + "_bytes_sent"].get<double>();
  const bool has_axis = contains(row["mesh"].get<std::string>(), axis);
  CHECK((sent > 0) == has_axis);
  if (axis == "pp" || contains(row["mesh"].get<std::string>(), axis + "=2"))
    CHECK(std::abs(sent - row["formula_" + axis + "_bytes_sent"].get<double>()) <= 64);
}

// The formula of what is held counts no updates: 4 bytes for each parameter of a rank.
void check_memory(const Json& row, int pipeline_ranks) {
  CAPTURE(row["mesh"]);
  REQUIRE(row["memory"].size() == static_cast<std::size_t>(pipeline_ranks));
  for (const auto& memory : row["memory"]) {
    CAPTURE(memory["pp_coordinate"]);
    const double updates =
        memory["held_bytes"].get<double>() - memory["formula_held_bytes"].get<double>();
    const double blocks = 4.0 / pipeline_ranks;  // 9 parameters each; 3 outside
    CHECK(updates >= 4 * 9 * blocks);
    CHECK(updates <= 4 * (9 * blocks + 3));
    // The estimate leaves out the table of RoPE, which counts with so few tokens.
    CHECK(memory["peak_activations_bytes"].get<double>() ==
          doctest::Approx(memory["estimated_peak_activations_bytes"].get<double>()).epsilon(0.05));
  }
}

}  // namespace

// The norm and the loss, a few numbers, are in no formula.
TEST_CASE("bench mesh measures the meshes that are named, with shards, copies and sequences") {
  const BenchOutcome bench =
      bench_mesh({"-n", "4", "--batch", "2", "--mesh", "dp=2,fsdp=2", "--mesh", "fsdp=2,tp=2",
                  "--mesh", "fsdp=2,cp=2", "--mesh", "cp=2,tp=2", "--parallel", "zero2"});
  REQUIRE(bench.rows.size() == 4);
  for (const auto& row : bench.rows) {
    CAPTURE(row["mesh"]);
    for (const char* axis : {"dp", "fsdp", "cp", "tp"}) {
      CAPTURE(axis);
      const auto sent = row[std::string(axis) + "_bytes_sent"].get<double>(),
                 formula = row["formula_" + std::string(axis) + "_bytes_sent"].get<double>();
      CHECK((sent > 0) == contains("," + row["mesh"].get<std::string>(), "," + std::string(axis)));
      CHECK(sent == doctest::Approx(formula).epsilon(0.01));
    }
  }
}

TEST_CASE("bench mesh measures data, tensor and pipeline parallel ranks beside the formulas") {
  const BenchOutcome bench = bench_mesh({"-n", "2", "--batch", "2"});
  REQUIRE(bench.rows.size() == 3);
  CHECK(bench.rows[0]["mesh"] == "dp=2");
  CHECK(bench.rows[1]["mesh"] == "tp=2");
  CHECK(bench.rows[2]["mesh"] == "pp=2");
  CHECK(bench.rows[2]["schedule"] == "1f1b");
  CHECK(bench.rows[2]["micro_batches"] == 4);
  for (const auto& row : bench.rows) {
    CHECK(row["step_ms"] > 0);
    for (const char* axis : {"tp", "dp", "pp"}) check_bytes(row, axis);
    check_memory(row, row["mesh"] == "pp=2" ? 2 : 1);
  }
}

TEST_CASE("bench mesh --device: the same bytes and memory on a device") {
  const BenchOutcome bench = bench_mesh({"-n", "2", "--batch", "2", "--device", "emulated"});
  REQUIRE(bench.rows.size() == 3);
  CHECK(contains(bench.table, ", on emulated; "));
  for (const auto& row : bench.rows) {
    CHECK(row["device"] == "emulated");
    for (const char* axis : {"tp", "dp", "pp"}) check_bytes(row, axis);
    check_memory(row, row["mesh"] == "pp=2" ? 2 : 1);
  }
}

TEST_CASE("bench mesh: bytes along each axis with shorter stages and divided sequences") {
  const BenchOutcome bench =
      bench_mesh({"-n", "4", "--batch", "2", "--backend", "threads", "--schedule", "interleaved",
                  "--micro-batches", "4", "--sequence-parallel"});
  REQUIRE(bench.rows.size() == 5);
  CHECK(bench.rows[3]["mesh"] == "pp=2,dp=2");
  CHECK(bench.rows[4]["mesh"] == "pp=2,tp=2");
  CHECK(bench.rows[4]["sequence_parallel"] == true);
  for (const auto& row : bench.rows)
    for (const char* axis : {"tp", "dp", "pp"}) check_bytes(row, axis);
  // 4 ranks with 2 stages each need 8 layers; tiny has 4.
  CHECK(contains(bench.table, "pp=4 is left out: 4 layers cannot be divided among the 8 stages"));
}

TEST_CASE("bench mesh: zero2 reduces gradients after each micro-batch") {
  const BenchOutcome bench =
      bench_mesh({"-n", "4", "--batch", "2", "--backend", "threads", "--parallel", "zero2"});
  REQUIRE(bench.rows.size() == 6);
  CHECK(bench.rows[3]["mesh"] == "pp=2,dp=2");
  for (const auto& row : bench.rows) check_bytes(row, "dp");
}

TEST_CASE("bench mesh leaves out meshes that cannot divide the model, and says why") {
  const BenchOutcome bench = bench_mesh({"-n", "3", "--batch", "1"});
  REQUIRE(bench.rows.size() == 2);
  CHECK(bench.rows[0]["mesh"] == "dp=3");
  CHECK(bench.rows[1]["mesh"] == "pp=3");
  CHECK(contains(bench.table, "tp=3 is left out: "));
}
