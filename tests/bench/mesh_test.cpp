// `ringside bench mesh`: every mesh of the ranks, with the bytes and the memory that its axes tell.
#include <cmath>

#include <doctest/doctest.h>

#include "parallel/mesh_shape.hpp"
#include "tests/bench/run_bench.hpp"
#include "transformer/config.hpp"

using namespace ringside;
using namespace ringside::testing;
using transformer::Config;

namespace {

BenchOutcome bench_mesh(std::vector<std::string> options) {
  options.insert(options.end(), {"--sequence", "16", "--steps", "2"});
  return run_bench("mesh", options);
}

// The model tiny in fp32 on a mesh, with so many micro-batches and so many stages on each pp rank,
// by the formulas of `ringside bench mesh --help`.
struct TinyOn {
  explicit TinyOn(const Json& row, int stages_per_rank = 1)
      : strategy(row["strategy"]),
        divides_sequence(row["sequence_parallel"]),
        tokens(row["batch"].get<double>() * row["sequence"].get<double>()),
        micro_batches(row["micro_batches"]),
        stages(stages_per_rank),
        mesh(row["mesh"].get<std::string>()) {}

  double size(parallel::Axis axis) const { return mesh.size(axis); }

  // The parameters of the rank with this pp coordinate.
  double parameters(double coordinate) const {
    const double vocabulary = double(tiny.vocabulary * tiny.d_model), w = double(tiny.d_model),
                 layers = double(tiny.layers), t = size(parallel::Axis::tp),
                 p = size(parallel::Axis::pp),
                 block = (double(parameter_count(tiny)) - 2 * vocabulary - w) / layers;
    return layers / p * ((block - 2 * w) / t + 2 * w) + (coordinate == 0 ? vocabulary / t : 0) +
           (coordinate == p - 1 ? vocabulary / t + w : 0);
  }

  // Bytes that a rank sends in a step, the mean of the ranks.
  double sent(parallel::Axis axis) const {
    const double p = size(parallel::Axis::pp), d = size(parallel::Axis::dp),
                 f = size(parallel::Axis::fsdp), t = size(parallel::Axis::tp), N = tokens / (d * f),
                 w = double(tiny.d_model), L = double(tiny.layers),
                 norms = divides_sequence ? (2 * L + 1) * w : 0,
                 n = 4 * (parameters(0) + (p > 1 ? parameters(1) : 0)) / p,
                 times = strategy == "zero2" ? micro_batches + 1 : 2;
    if (axis == parallel::Axis::tp)
      return (t - 1) / t * 4 / p * (N * (8 * L * w + 4 * w + 6) + 2 * norms);
    if (axis == parallel::Axis::fsdp) return times * (f - 1) / f * n;
    if (axis == parallel::Axis::dp) return (f > 1 ? 2 / f : times) * (d - 1) / d * n;
    return 2 * (stages * p - 1) / p * N * w * 4 / (divides_sequence ? t : 1);
  }

  const Config tiny = transformer::named_config("tiny");
  std::string strategy;
  bool divides_sequence;
  double tokens, micro_batches, stages;
  parallel::MeshShape mesh;
};

// Whether what was sent is what the formula says, but for the few numbers of the norm and the loss,
// and with zero2 the padding of shards. Two ranks send the same bytes with every algorithm; more
// may take one that sends others. Messages between stages have one algorithm.
void check_bytes(const Json& row, const std::vector<parallel::Axis>& axes, int stages = 1) {
  CAPTURE(row["mesh"]);
  const TinyOn expected(row, stages);
  for (const parallel::Axis axis : axes) {
    CAPTURE(name_of(axis));
    const auto sent = row[fmt::format("{}_bytes_sent", name_of(axis))].get<double>();
    CHECK((sent > 0) == (expected.size(axis) > 1));
    if (expected.size(axis) == 2) {
      const double slack = expected.strategy == "zero2" ? 0.01 : 0;
      CHECK(std::abs(sent - expected.sent(axis)) <= 64 + slack * sent);
    }
  }
}

// Parameters, gradients and two numbers for each parameter. An update is counted in 4 bytes of each
// tensor of a rank.
void check_memory(const Json& row, int pipeline_ranks) {
  CAPTURE(row["mesh"]);
  REQUIRE(row["memory"].size() == static_cast<std::size_t>(pipeline_ranks));
  for (const auto& memory : row["memory"]) {
    CAPTURE(memory["pp_coordinate"]);
    const double updates = memory["held_bytes"].get<double>() -
                           16 * TinyOn(row).parameters(memory["pp_coordinate"].get<double>());
    const double blocks = 4.0 / pipeline_ranks;  // 9 parameters each; 3 outside
    CHECK(updates >= 4 * 9 * blocks);
    CHECK(updates <= 4 * (9 * blocks + 3));
    // The estimate leaves out the table of RoPE, which counts with so few tokens.
    CHECK(memory["peak_activations_bytes"].get<double>() ==
          doctest::Approx(memory["estimated_peak_activations_bytes"].get<double>()).epsilon(0.05));
  }
}

}  // namespace

TEST_CASE("bench mesh measures the meshes that are named, with shards, copies and sequences") {
  const BenchOutcome bench =
      bench_mesh({"-n", "4", "--batch", "2", "--mesh", "dp=2,fsdp=2", "--mesh", "fsdp=2,tp=2",
                  "--mesh", "fsdp=2,cp=2", "--mesh", "cp=2,tp=2", "--parallel", "zero2"});
  REQUIRE(bench.rows.size() == 4);
  for (const auto& row : bench.rows) {
    CAPTURE(row["mesh"]);
    const std::string mesh = "," + row["mesh"].get<std::string>();
    if (!contains(mesh, ",cp"))
      check_bytes(row, {parallel::Axis::dp, parallel::Axis::fsdp, parallel::Axis::tp});
    for (const std::string axis : {"dp", "fsdp", "cp", "tp"})
      CHECK((row[axis + "_bytes_sent"].get<double>() > 0) == contains(mesh, "," + axis));
  }
}

TEST_CASE("bench mesh measures data, tensor and pipeline parallel ranks") {
  const BenchOutcome bench = bench_mesh({"-n", "2", "--batch", "2"});
  REQUIRE(bench.rows.size() == 3);
  CHECK(bench.rows[0]["mesh"] == "dp=2");
  CHECK(bench.rows[1]["mesh"] == "tp=2");
  CHECK(bench.rows[2]["mesh"] == "pp=2");
  CHECK(bench.rows[2]["schedule"] == "1f1b");
  CHECK(bench.rows[2]["micro_batches"] == 4);
  for (const auto& row : bench.rows) {
    CHECK(row["step_ms"] > 0);
    check_bytes(row, {parallel::Axis::tp, parallel::Axis::dp, parallel::Axis::pp});
    check_memory(row, row["mesh"] == "pp=2" ? 2 : 1);
  }
}

TEST_CASE("bench mesh --device: the same bytes and memory on a device") {
  const BenchOutcome bench = bench_mesh({"-n", "2", "--batch", "2", "--device", "emulated"});
  REQUIRE(bench.rows.size() == 3);
  CHECK(contains(bench.table, ", on emulated; "));
  for (const auto& row : bench.rows) {
    CHECK(row["device"] == "emulated");
    check_bytes(row, {parallel::Axis::tp, parallel::Axis::dp, parallel::Axis::pp});
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
    check_bytes(row, {parallel::Axis::tp, parallel::Axis::dp, parallel::Axis::pp}, 2);
  // 4 ranks with 2 stages each need 8 layers; tiny has 4.
  CHECK(contains(bench.table, "pp=4 is left out: 4 layers cannot be divided among the 8 stages"));
}

TEST_CASE("bench mesh: zero2 reduces gradients after each micro-batch") {
  const BenchOutcome bench =
      bench_mesh({"-n", "4", "--batch", "2", "--backend", "threads", "--parallel", "zero2"});
  REQUIRE(bench.rows.size() == 6);
  CHECK(bench.rows[3]["mesh"] == "pp=2,dp=2");
  for (const auto& row : bench.rows) check_bytes(row, {parallel::Axis::dp});
}

TEST_CASE("bench mesh leaves out meshes that cannot divide the model, and says why") {
  const BenchOutcome bench = bench_mesh({"-n", "3", "--batch", "1"});
  REQUIRE(bench.rows.size() == 2);
  CHECK(bench.rows[0]["mesh"] == "dp=3");
  CHECK(bench.rows[1]["mesh"] == "pp=3");
  CHECK(contains(bench.table, "tp=3 is left out: "));
}
