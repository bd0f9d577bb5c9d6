// `ringside bench ddp`: calls, bytes and exposed time of each strategy, its page and its picture.
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "base/clock.hpp"
#include "base/read_file.hpp"
#include "bench/training/ddp_report.hpp"
#include "ddp/buckets.hpp"
#include "tests/bench/run_bench.hpp"
#include "tests/cli/pictures/report/markup.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "transformer/model.hpp"

using namespace ringside;
using namespace ringside::testing;
using tests::what_is_malformed;

namespace {

// On two ranks, with short sequences.
BenchOutcome bench_ddp(std::vector<std::string> options) {
  options.insert(options.end(), {"-n", "2", "--batch", "1", "--sequence", "16"});
  return run_bench("ddp", options);
}

}  // namespace

TEST_CASE("the report of bench ddp shows predicted and measured time by bucket size") {
  using namespace ringside::cli;
  const auto row = [](const std::string& name, std::optional<double> mb, double step,
                      double exposed, int calls) {
    StepRow figures{{name, {}, mb}};
    figures.step_seconds = step, figures.exposed_seconds = exposed, figures.calls = calls;
    if (mb) figures.by_formula = 0.0094, figures.followed = 0.0052;
    figures.memory.resize(1), figures.needed.resize(1);
    return figures;
  };
  // The last of the buckets is ready when backward ends: exposed are 150 us and 1 ns for each byte.
  const DdpFigures figures{
      .run = {},
      .gradient_bytes = 91e6,
      .rows = {row("none", {}, 0.1, 0, 0), row("flat", {}, 0.2, 0, 1),
               row("bucketed", 10, 0.111, 0.009, 12), row("bucketed", 1000, 0.098, 0.09, 1)},
      .forecast = {.sizes = {{5, {{91e6, 0.02}}}, {10, {{5.05e6, 0.02}}}, {1000, {{60e6, 0.02}}}},
                   .backward = 0.02,
                   .all_reduces = {},
                   .model = {150e-6, 1e9}}};
  const Figure figure = bucket_figure(figures);
  CHECK(contains(figure.caption,
                 "s = 91.0 MB of gradients, o = 150.0 us per call, w = 1.000 GB/s; by the formula "
                 "the best bucket has sqrt(s w o) = 3.69 MB and exposes 7.4 ms; followed in time, "
                 "the best limit is 10 MB and exposes 5.2 ms."));
  const Json& measured = figure.drawing.at("series")[2];
  CHECK(measured.at("name") == "measured: exposed");
  CHECK(measured.at("points")[0][0] == doctest::Approx(91.0 / 12));  // MB
  CHECK(measured.at("points")[0][1] == doctest::Approx(9));          // ms
  const Json rows = figure.table.shown().at("rows");
  CHECK(rows[0].dump() == R"(["bucketed","10","111.0","9.0","9.4","5.2","12"])");
  CHECK(rows.size() == 2);
}

TEST_CASE("bench ddp reports the calls, the bytes and the exposed time of each strategy") {
  const TemporaryDirectory directory;
  const auto report = directory.path() / "ddp.html", svg = directory.path() / "ddp.svg";
  const auto [all, table] =
      bench_ddp({"--steps", "3", "--buckets", "1,1000", "--report", report, "--svg", svg});
  CHECK(contains(table, "tiny: "));
  CHECK(contains(table, "no communication"));
  CHECK(contains(table, "bucket model: s = 3.4 MB of gradients, o = "));
  const std::int64_t bytes = all.at("bucket_model").at("gradient_bytes");
  std::map<std::string, Json> rows;
  for (const auto& row : all.at("rows"))
    rows[row.at("strategy").get<std::string>() +
         (row.at("bucket_mb").is_null() ? ""
                                        : fmt::format(" {}", row.at("bucket_mb").get<double>()))] =
        row;
  REQUIRE(rows.size() == 6);
  CHECK(rows["none"].at("calls") == 0);
  CHECK(rows["naive"].at("calls") == 39);  // 4 layers of 9, embedding, norm, head
  CHECK(rows["overlap"].at("calls") == 39);
  CHECK(rows["flat"].at("calls") == 1);
  CHECK(rows["bucketed 1000"].at("calls") == 2);  // the first bucket is small
  for (const auto& [name, row] : rows) {
    CHECK_MESSAGE(row.at("bytes_sent") == (name == "none" ? 0 : bytes), name);  // 2 (p-1) / p = 1
    CHECK(row.at("step_ms").get<double>() > 0);
    CHECK(row.at("exposed_ms").get<double>() <= row.at("step_ms").get<double>());
    CHECK(row.at("ratio").get<double>() ==
          doctest::Approx(row.at("step_ms").get<double>() /
                          rows["none"].at("step_ms").get<double>()));
  }
  const std::string page = read_file(report);
  CHECK(what_is_malformed(page) == "");
  CHECK(!contains(page, "http"));
  CHECK(page.find("One step: naive") < page.find("One step: bucketed"));
  CHECK(contains(page, "How large should a bucket be?"));
  const Json side_by_side = tests::data_of_report(page).at("figures")[0].at("table");
  CHECK(contains(side_by_side.dump(),
                 fmt::format("\"{:.1f}\"", rows["naive"].at("step_ms").get<double>())));
  CHECK(what_is_malformed(read_file(svg)) == "");
}

TEST_CASE("bench ddp chooses four bucket sizes with the predicted best among them") {
  const auto [all, table] =
      bench_ddp({"--steps", "1", "--strategies", "bucketed", "--link", "100Mbps,50us"});
  std::set<int> calls;
  std::set<double> sizes;
  for (const auto& row : all.at("rows")) {
    if (row.at("strategy") != "bucketed") continue;
    calls.insert(row.at("calls").get<int>());
    sizes.insert(row.at("bucket_mb").get<double>());
    // The link carries the 3.4 MB in 270 ms. Nobody hides that behind a short backward.
    CHECK(row.at("followed_exposed_ms").get<double>() > 100);
  }
  CHECK(calls.size() == 4);
  CHECK(calls.contains(2));
  CHECK(sizes.contains(all.at("bucket_model").at("best_followed_mb").get<double>()));
}

TEST_CASE("bench ddp measures several backends in turn beside one step without communication") {
  const auto [all, table] = bench_ddp(
      {"--steps", "2", "--strategies", "flat,bucketed", "--buckets", "1", "--backend", "tcp,shm"});
  CHECK(contains(table, "tiny: 857k parameters on 2 ranks over tcp; "));
  CHECK(contains(table, "\n\ntiny: 857k parameters on 2 ranks over shm; "));
  REQUIRE(all.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const Json& rows = all[i].at("rows");
    REQUIRE(rows.size() == 3);
    for (const Json& row : rows) CHECK(row.at("backend") == (i == 0 ? "tcp" : "shm"));
    CHECK(rows[0].at("step_ms") == all[0].at("rows")[0].at("step_ms"));
    CHECK(rows[1].at("strategy") == "flat");
    CHECK(rows[2].at("bytes_sent") == all[i].at("bucket_model").at("gradient_bytes"));
  }
}

TEST_CASE("bench ddp --plan says which parameter lies in which bucket, and measures nothing") {
  const transformer::Model model(transformer::named_config("tiny"), autograd::DType::bf16);
  const auto [all, table] = run_bench("ddp", {"--plan", "--buckets", "0.3,25", "--dtype", "bf16"});
  CHECK(contains(table,
                 "tiny: 1714432 bytes of gradients in bf16\n"
                 "2 buckets of at most 25 MB, the first of at most 1\n"));
  CHECK(contains(table, "\n  bucket  its bytes  parameter "));
  REQUIRE(all.size() == 2 * 39);
  std::size_t row = 0;
  for (const double mb : {0.3, 25.0}) {
    const auto buckets = ddp::plan_buckets(model, mb);
    for (std::size_t b = 0; b < buckets.size(); ++b)
      for (const auto& [parameter, begin] : buckets[b].entries) {
        const Json& told = all[row++];
        CHECK(told.at("bucket_mb") == mb);
        CHECK(told.at("bucket") == b);
        CHECK(told.at("bucket_bytes") == 2 * buckets[b].elements);
        CHECK(told.at("parameter") == parameter.name);
        CHECK(told.at("begin_bytes") == 2 * begin);
        CHECK(told.at("bytes") == 2 * parameter.tensor.elements());
      }
  }
  CHECK(row == all.size());
  // The largest model takes no longer: its parameters have no values.
  const auto begin = Clock::now();
  CHECK(run_program({ringside_binary, "bench", "ddp", "--plan", "--model", "xl"}).exit_code == 0);
  CHECK(seconds_since(begin) < 5);
}

TEST_CASE("bench ddp trains in bf16, whose gradients have half of the bytes") {
  const auto [all, table] = bench_ddp(
      {"--steps", "2", "--strategies", "flat,bucketed", "--buckets", "1", "--dtype", "bf16"});
  CHECK(contains(table, "each, bf16, AdamW, 1"));
  CHECK(contains(table, "bucket model: s = 1.7 MB of gradients, "));
  const std::int64_t bytes = all.at("bucket_model").at("gradient_bytes");
  for (const Json& row : all.at("rows")) {
    CHECK(row.at("type") == "bf16");
    CHECK(row.at("bytes_sent") == (row.at("strategy") == "none" ? 0 : bytes));
  }
}

TEST_CASE("bench ddp refuses backends that cannot take turns, and more memory than there is") {
  const auto error_of = [](const std::vector<std::string>& options) {
    std::vector<std::string> command = {ringside_binary, "bench", "ddp", "-n", "2",
                                        "--model",       "tiny"};
    command.insert(command.end(), options.begin(), options.end());
    return run_program(command).err;
  };
  CHECK(error_of({"--backend", "tcp,threads"}) ==
        "ringside: --backend threads keeps all ranks in one process, so no other backend can take "
        "turns with it: name it alone\nTry: ringside bench --help\n");
  CHECK(error_of({"--backend", "tcp,shm", "--report", "ddp.html"}) ==
        "ringside: --svg and --report show one backend: name one with --backend, or leave them "
        "out\nTry: ringside bench --help\n");
  CHECK(contains(error_of({"--memory-limit", "0.01"}), "ringside: this needs about 0."));
}
