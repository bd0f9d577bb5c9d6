// `ringside bench kernels`: every kernel runs, and the figures are consistent.
#include <doctest/doctest.h>

#include "cli/pictures/json_file.hpp"
#include "tests/cli/run_program.hpp"

using namespace ringside::testing;
using ringside::Json;

TEST_CASE("bench kernels measures every kernel beside copies and matrix products") {
  for (const std::string dtype : {"bf16", "fp32"}) {
    const auto outcome =
        run_program({ringside_binary, "bench", "kernels", "--device", "emulated", "--dtype", dtype,
                     "--size", "8KB", "--width", "64", "--vocabulary", "100", "--rounds", "2",
                     "--calls", "2", "--json", "-"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    CHECK(outcome.err.find("emulated: the GPU's kernels, run on the CPU, " + dtype +
                           ", tensors of 8KB\n") == 0);
    const Json rows = Json::parse(outcome.out);
    CHECK(rows.size() == 19);  // attention at two widths of a head, and the copy again
    for (const Json& row : rows) {
      CAPTURE(row.dump());
      const double seconds = row.at("time_us").get<double>() * 1e-6;
      CHECK(seconds > 0);
      CHECK(row.at("ratio").get<double>() > 0);
      if (row.contains("bytes"))
        CHECK(row.at("rate_gbps").get<double>() ==
              doctest::Approx(row.at("bytes").get<double>() / seconds / 1e9));
      else
        CHECK(row.at("tflops").get<double>() ==
              doctest::Approx(row.at("flops").get<double>() / seconds / 1e12));
      const int row_bytes = 64 * (dtype == "bf16" ? 2 : 4);
      if (row.at("kernel") == "copy") CHECK(row.at("bytes") == 2 * (8000 / row_bytes * row_bytes));
      if (row.at("kernel") == "copy" || row.at("kernel") == "matrix product")
        CHECK(row.at("ratio") == 1);
    }
  }
}

TEST_CASE("bench kernels refuses --device cpu") {
  const auto outcome = run_program({ringside_binary, "bench", "kernels", "--device", "cpu"});
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.err.find(
            "bench kernels measures the kernels of a GPU: choose --device cuda or emulated") !=
        std::string::npos);
}
