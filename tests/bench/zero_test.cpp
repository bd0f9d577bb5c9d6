// `ringside bench zero`: the measured bytes agree with the formulas.
#include <doctest/doctest.h>

#include "tests/bench/run_bench.hpp"

using namespace ringside::testing;
using namespace ringside::cli;

namespace {

struct Formula {
  double parameters = 0, gradients = 0, optimizer_state = 0;  // bytes that a rank holds
  double sent = 0;                                            // bytes that it sends in a step
};

// Of `n` parameters in fp32 on `p` ranks with AdamW, as in the ZeRO paper (Rajbhandari et al. 2020,
// sections 3 and 7). zero3 gathers the blocks twice in a step, but `gathered_once` of the
// parameters (embedding, last norm and head) only once.
Formula formula_of(const std::string& strategy, double n, double p, double gathered_once) {
  const double bytes = 4 * n, hop = (p - 1) / p * bytes;
  if (strategy == "bucketed") return {bytes, bytes, 2 * bytes, 2 * hop};
  if (strategy == "zero1_broadcast") return {bytes, bytes, 2 * bytes / p, 3 * hop};
  if (strategy == "zero1") return {bytes, bytes, 2 * bytes / p, 2 * hop};
  if (strategy == "zero2") return {bytes, bytes / p, 2 * bytes / p, 2 * hop};
  return {bytes / p, bytes / p, 2 * bytes / p, 3 * hop - (p - 1) / p * 4 * gathered_once};
}

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
                              "; batch 1 x 32 each, fp32, AdamW, 1"));
    CHECK(contains(table, "on emulated\n") == (device == "emulated"));
    REQUIRE(rows.size() == 5);
    for (const auto& row : rows) {
      const auto formula = formula_of(row.at("strategy"), row.at("parameters"), row.at("ranks"),
                                      2 * 256 * 128 + 128);
      CAPTURE(row.at("strategy").get<std::string>());
      CHECK(row.at("device") == device);
      CHECK(row.at("step_ms").get<double>() > 0);
      CHECK(near(row.at("bytes_sent"), formula.sent, 0.005));  // shards are padded
      CHECK(row.at("sent_parameters").get<double>() * 4 * row.at("parameters").get<double>() ==
            doctest::Approx(row.at("bytes_sent").get<double>()));
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
      const double held = formula.parameters + formula.gradients + formula.optimizer_state;
      CHECK(near(row.at("held_bytes"), held, by_owner ? 0.05 : 0.02));
      CHECK(row.at("peak_bytes").get<double>() >= held);
      const auto& estimated = row.at("estimated");  // by training, before a run
      CHECK(near(estimated.at("optimizer_state_bytes"), formula.optimizer_state, 0.02));
      CHECK(near(row.at("peak").at("activations_bytes"), estimated.at("activations_bytes"), 0.05));
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
    const double n = rows[i].at("parameters").get<double>();
    const auto formula = formula_of(rows[i].at("strategy"), n, 2, 0);
    for (const auto& moment : rows[i].at("moments"))
      CHECK(near(moment.at("parameters_bytes"), formula.parameters, 0.02));
  }
}
