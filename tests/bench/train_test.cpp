// `ringside bench train`: its figures are consistent.
#include <filesystem>

#include <doctest/doctest.h>
#include <unistd.h>

#include "base/read_file.hpp"
#include "cli/pictures/json_file.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/text.hpp"

using namespace ringside::testing;
using ringside::Json;
using namespace ringside::cli;

TEST_CASE("bench train reports the time of each op of a step") {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("ringside-bench-train-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const auto json = folder / "step.json", svg = folder / "step.svg";
  const auto outcome = run_program({ringside_binary, "bench", "train", "--model", "tiny", "--batch",
                                    "2", "--sequence", "64", "--threads", "1,2", "--steps", "2",
                                    "--json", json.string(), "--svg", svg.string()});
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "tiny: 857k parameters; batch 2 x 64, fp32, AdamW, 1 thread\n"));
  CHECK(contains(outcome.out, "\ntiny: 857k parameters; batch 2 x 64, fp32, AdamW, 2 threads\n"));
  CHECK(contains(outcome.out, "\n  products by "));
  CHECK(contains(outcome.out, "\n  linear  "));
  CHECK(contains(outcome.out, "the same products alone"));
  CHECK(contains(outcome.out, "  peak memory "));

  const Json rows = Json::parse(read_file(json));
  REQUIRE(rows.size() == 2);
  for (const Json& row : rows) {
    double known = 0;
    for (const Json& op : row.at("ops"))
      known += op.at("forward_ms").get<double>() + op.at("backward_ms").get<double>();
    // The medians of single ops need not add up to the median of the step.
    CHECK(known <= 2 * row.at("step_ms").get<double>());
    CHECK(known >= 0.5 * row.at("step_ms").get<double>());
    // Six operations for each parameter and token, except for the norms and the embedding; and
    // attention's blocks below the diagonal. The linear layers alone:
    //     6 x 128 x (4 (4 x 128^2 + 3 x 128 x 344) + 128 x 256)
    CHECK(row.at("gflop").get<double>() >
          6 * 128 * (4 * (4 * 128 * 128 + 3 * 128 * 344) + 128 * 256) * 1e-9);
    CHECK(row.at("gflop").get<double>() <
          6 * 128 * (4 * (4 * 128 * 128 + 3 * 128 * 344) + 128 * 256) * 1e-9 * 1.1);
    // Parameters, gradients and two moments are 16 bytes per parameter.
    CHECK(row.at("peak_tensor_bytes").get<double>() > 16 * row.at("parameters").get<double>());
    CHECK(row.at("peak_tensor_bytes").get<double>() < 40 * row.at("parameters").get<double>());
    CHECK(row.at("peak_resident_bytes").get<double>() > row.at("peak_tensor_bytes").get<double>());
    CHECK(row.at("tokens_per_second").get<double>() ==
          doctest::Approx(128 / row.at("step_ms").get<double>() * 1e3));
  }
  CHECK(rows[0].at("gemm_ms").get<double>() < 2 * rows[0].at("step_ms").get<double>());
  CHECK(!rows[1].contains("gemm_ms"));
  CHECK(read_file(svg).starts_with("<svg"));
  CHECK(contains(read_file(svg), ">linear</text>"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("the comparison with PyTorch names the missing package") {
  const char* python = "/usr/bin/python3";
  if (::access(python, X_OK) != 0) {
    MESSAGE("SKIPPED: there is no ", std::string(python));
    return;
  }
  for (const std::string script : {"train_step.py", "parallel_step.py"}) {
    // -S: without the installed packages.
    const auto outcome =
        run_program({python, "-S", "-B", std::string(RINGSIDE_PEERS) + "/" + script});
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.out == "");
    CHECK(outcome.err == std::string(RINGSIDE_PEERS) + "/" + script + ": " + python +
                             " has no torch: install it (pip install torch, in a venv outside the "
                             "repository) and run this script with that Python\n");
  }
}

TEST_CASE("bench without a collective is a usage error") {
  const auto outcome = run_program({ringside_binary, "bench"});
  CHECK(outcome.exit_code == 2);
  CHECK(contains(
      outcome.err,
      "name what to measure: a collective such as all_reduce, or train, ddp, zero or kernels"));
}
