// `ringside bench zero`: the measured bytes agree with the formulas.
#include <doctest/doctest.h>

#include "cli/bench/training/zero_report.hpp"
#include "cli/pictures/json_file.hpp"
#include "tests/cli/bench/run_bench.hpp"

using namespace ringside::testing;
using namespace ringside::cli;

namespace {

bool near(double seen, double wanted, double slack) {
  return std::abs(seen - wanted) <= slack * wanted;
}

}  // namespace

TEST_CASE("bench zero measures the bytes of the formulas") {
  for (const auto& [backend, device] : {std::pair<std::string, std::string>{"shm", "cpu"},
                                        {"threads", "cpu"},
                                        {"shm", "emulated"}}) {
    CAPTURE(backend);
    CAPTURE(device);
    const auto [rows, table] =
        run_bench("zero",
                  {"-n", "3", "--batch", "1", "--sequence", "32", "--steps", "2", "--bucket-mb",
                   "0.5", "--backend", backend, "--device", device},
                  {{"RINGSIDE_ALGORITHM", "all_reduce=ring,reduce_scatter=ring,all_gather=ring"}});
    CHECK(contains(table, "tiny: 857k parameters on 3 ranks over " + backend +
                              ";\nbatch 1 x 32 each, fp32, AdamW, 1 thread each" +
                              (device == "cpu" ? "\n" : ", on emulated\n")));
    REQUIRE(rows.size() == 5);
    for (const auto& row : rows) {
      const auto formula = zero_formula(row.at("strategy"), row.at("parameters"), row.at("ranks"),
                                        2 * 256 * 128 + 128);
      CAPTURE(row.at("strategy").get<std::string>());
      CHECK(row.at("device") == device);
      CHECK(row.at("step_ms").get<double>() > 0);
      CHECK(near(row.at("bytes_sent"), formula.sent, 0.005));  // shards are padded
      // An owner has whole parameters, so one rank holds more than the others.
      const bool by_owner = row.at("strategy") == "zero1_broadcast";
      REQUIRE(row.at("moments").size() == 3);
      for (const auto& moment : row.at("moments")) {
        CAPTURE(moment.at("moment").get<std::string>());
        CHECK(near(moment.at("parameters_bytes"), formula.parameters, 0.02));
        CHECK(near(moment.at("gradients_bytes"), formula.gradients, 0.02));
        CHECK(near(moment.at("optimizer_state_bytes"), formula.optimizer_state,
                   by_owner ? 0.1 : 0.02));
      }
      CHECK(row.at("peak_bytes").get<double>() >=
            formula.parameters + formula.gradients + formula.optimizer_state);
    }
  }
}

TEST_CASE("bench zero measures several backends in turn") {
  const auto [rows, table] =
      run_bench("zero", {"-n", "2", "--batch", "1", "--sequence", "16", "--steps", "2",
                         "--strategies", "zero1,zero3", "--backend", "shm,tcp"});
  CHECK(contains(table, "tiny: 857k parameters on 2 ranks over shm;"));
  CHECK(contains(table, "\n\ntiny: 857k parameters on 2 ranks over tcp;"));
  REQUIRE(rows.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(rows[i].at("backend") == (i < 2 ? "shm" : "tcp"));
    CHECK(rows[i].at("strategy") == (i % 2 == 0 ? "zero1" : "zero3"));
    // The memory of the other strategies does not count.
    for (const auto& moment : rows[i].at("moments"))
      CHECK(near(moment.at("parameters_bytes"), rows[i].at("formula_parameters_bytes"), 0.02));
  }
}

TEST_CASE("the formulas of data parallelism and of the stages of ZeRO") {
  const auto f = [](const char* strategy) { return zero_formula(strategy, 1000, 4, 100); };
  CHECK((f("bucketed").optimizer_state == 8000 && f("bucketed").sent == 6000));
  CHECK((f("zero1").parameters == 4000 && f("zero1").gradients == 4000 &&
         f("zero1").optimizer_state == 2000 && f("zero1").sent == 6000));
  CHECK((f("zero1_broadcast").optimizer_state == 2000 && f("zero1_broadcast").sent == 9000));
  CHECK((f("zero2").parameters == 4000 && f("zero2").gradients == 1000 && f("zero2").sent == 6000));
  CHECK((f("zero3").parameters == 1000 && f("zero3").gradients == 1000 &&
         f("zero3").optimizer_state == 2000 && f("zero3").sent == 8700));
  CHECK_THROWS_WITH(f("naive"), "there is no formula for the strategy 'naive'");
}
