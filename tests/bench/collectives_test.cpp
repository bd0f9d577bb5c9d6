// `ringside bench` on small sizes: columns, JSON keys, correct results, and errors.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "bench/bench_options.hpp"
#include "bench/calibrate.hpp"
#include "bench/data.hpp"
#include "bench/report.hpp"
#include "cli/pictures/numbers.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/selection/calibration.hpp"
#include "tests/cli/run_program.hpp"

using namespace ringside;
using namespace ringside::testing;
using collectives::Collective;

namespace {

Outcome bench(std::vector<std::string> arguments, const Variables& variables = {}) {
  arguments.insert(arguments.begin(), {ringside_binary, "bench"});
  return run_program(arguments, variables, Seconds(60));
}

// A temporary file, removed at the end of the test.
struct TemporaryFile {
  explicit TemporaryFile(const std::string& name)
      : path(std::filesystem::temp_directory_path() / (name + std::to_string(::getpid()))) {}
  ~TemporaryFile() { std::filesystem::remove(path); }
  std::string text() const { return read_file(path); }
  std::filesystem::path path;
};

// Runs bench, checks what must hold for each row, and returns the rows.
Json rows_of(std::vector<std::string> arguments, const Variables& variables = {}) {
  const TemporaryFile file("ringside-bench-test-");
  arguments.insert(arguments.end(), {"--json", file.path, "--warmup", "1", "--repeat", "4"});
  const auto outcome = bench(arguments, variables);
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(outcome.survivors == "");
  const auto rows = Json::parse(file.text());
  for (const auto& row : rows) {
    CAPTURE(row.dump());
    CHECK(row.at("wrong") == 0);
    CHECK(row.at("time_us") > 0);
    CHECK(row.at("algbw_gbps").get<double>() * row.at("time_us").get<double>() * 1e3 ==
          doctest::Approx(row.at("bytes").get<double>()));
    if (row.at("limit_gbps") > 0)
      CHECK(row.at("ratio").get<double>() == doctest::Approx(row.at("busbw_gbps").get<double>() /
                                                             row.at("limit_gbps").get<double>()));
  }
  return rows;
}

std::string one_error(const std::vector<std::string>& arguments, int exit_code = 1) {
  const auto outcome = bench(arguments);
  CHECK(outcome.exit_code == exit_code);
  CHECK(outcome.out == "");
  return outcome.err;
}

}  // namespace

TEST_CASE("bench keeps the fastest of several passes, and what was wrong in any") {
  const auto row = [](int bytes, bool selected, double us, int wrong) {
    return Json{{"ranks", 4},    {"backend", "shm"},  {"bytes", bytes},       {"algorithm", "ring"},
                {"time_us", us}, {"in_place", false}, {"selected", selected}, {"wrong", wrong}};
  };
  CHECK(cli::fastest_of_passes(
            Json::array({row(4, true, 10, 0), row(4, false, 9, 1), row(64, false, 20, 0),
                         row(4, true, 11, 0), row(4, false, 8, 0), row(64, false, 30, 2)})) ==
        Json::array({row(4, true, 10, 0), row(4, false, 8, 1), row(64, false, 20, 2)}));

  const Outcome outcome = bench({"all_reduce", "-n", "2", "--backends", "threads", "--bytes", "64",
                                 "--passes", "2", "--repeat", "1", "--json", "-"});
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.err, "pass 1 of 2: 2 ranks\n"));
  CHECK(contains(outcome.err, "pass 2 of 2: 2 ranks\n"));
  CHECK(Json::parse(outcome.out).size() == 1);
}

TEST_CASE("bench counts in how many cells the selected algorithm is near the fastest") {
  const auto row = [](int bytes, const char* algorithm, bool selected, double us) {
    return Json{
        {"ranks", 4},           {"backend", "shm"}, {"bytes", bytes},    {"algorithm", algorithm},
        {"selected", selected}, {"time_us", us},    {"predicted_us", 10}};
  };
  CHECK(cli::selection_in_words(Json::array({row(4, "ring", true, 10), row(4, "direct", false, 9.5),
                                             row(64, "ring", true, 30), row(64, "ring", false, 20),
                                             row(64, "direct", false, 10)})) ==
        "auto: within 10 % of the fastest algorithm in 1 of 2 cells\n"
        "at worst 2.00 times its time: 4 ranks over shm, 64 B\n"
        "the cost model: within 15 % of the measured time in 3 of 4 measurements\n");
  CHECK(cli::selection_in_words(Json::array({row(4, "ring", true, 10)})) == "");
  CHECK(cli::selection_in_words(
            Json::array({row(4, "ring", false, 10), row(4, "direct", false, 1)})) == "");

  const Outcome measured = bench({"all_reduce", "-n", "2", "--backends", "threads", "--algorithm",
                                  "auto,ring", "--bytes", "4B,64B", "--repeat", "1"});
  CHECK(measured.out.find("of the fastest algorithm in ") != std::string::npos);
  CHECK(measured.out.find(" of 2 cells\nat worst ") != std::string::npos);
}

TEST_CASE("bench has a row for each number of ranks, size and backend, with stable JSON keys") {
  const auto rows =
      rows_of({"all_reduce", "-n", "2,3", "--bytes", "4B,40KB", "--backends", "tcp,threads,shm"});
  REQUIRE(rows.size() == 12);
  std::vector<std::string> keys;
  for (const auto& [key, value] : rows[0].items()) keys.push_back(key);
  std::vector<std::string> expected{
      "collective", "algorithm", "backend",  "ranks",      "bytes",        "type",
      "op",         "queued",    "time_us",  "algbw_gbps", "busbw_gbps",   "limit_gbps",
      "ratio",      "wrong",     "selected", "in_place",   "predicted_us", "p99_us",
      "max_us",     "min_us",    "cv",       "choice"};
  std::sort(keys.begin(), keys.end());
  std::sort(expected.begin(), expected.end());
  CHECK(keys == expected);
  CHECK(rows[3].at("backend") == "tcp");
  CHECK(rows[3].at("bytes") == 40000);
  CHECK(rows[3].at("ranks") == 2);
  CHECK(rows[3].at("predicted_us") > 0);
  CHECK(rows[3].at("p99_us") >= rows[3].at("time_us"));
  CHECK(rows[3].at("max_us") >= rows[3].at("p99_us"));
  CHECK(rows[3].at("op") == "sum");
  CHECK(rows[3].at("busbw_gbps").get<double>() ==
        doctest::Approx(rows[3].at("algbw_gbps").get<double>()));
  const auto& three = rows[11];
  CHECK(three.at("ranks") == 3);
  CHECK(three.at("busbw_gbps").get<double>() ==
        doctest::Approx(three.at("algbw_gbps").get<double>() * 4 / 3));
  CHECK(three.at("limit_gbps") > 0);
}

TEST_CASE("bench measures in place what does not fit in memory otherwise, and its table says so") {
  constexpr std::uint64_t gigabyte = 1'000'000'000;
  cli::BenchOptions options;
  options.ranks = {2, 6};
  options.bytes = {4, gigabyte};
  options.backends = {"tcp", "shm"};
  CHECK(!cli::measures_in_place(options, 6, 4, 16 * gigabyte));
  CHECK(!cli::measures_in_place(options, 6, gigabyte, 18 * gigabyte));
  CHECK(cli::measures_in_place(options, 6, gigabyte, 16 * gigabyte));
  cli::check_memory(options, 6 * gigabyte);
  CHECK_THROWS_WITH(cli::check_memory(options, 6 * gigabyte - 1),
                    "6 ranks with 1 buffer of 1 GB each need 6.0 GB of memory, and 6.0 GB are "
                    "available: measure less with --bytes or -n");
  options.both_places = true;
  CHECK(!cli::measures_in_place(options, 6, gigabyte, 16 * gigabyte));
  CHECK_THROWS_WITH(cli::check_memory(options, 16 * gigabyte),
                    "6 ranks with 3 buffers of 1 GB each need 18.0 GB of memory, and 16.0 GB are "
                    "available: measure less with --bytes or -n");
  if (cli::bench_backends().at(3).available) {  // gloo has temporary buffers of its own
    options.both_places = false, options.backends = {"gloo"};
    CHECK_THROWS_WITH(cli::check_memory(options, 10 * gigabyte),
                      "6 ranks with 2 buffers of 1 GB each need 12.0 GB of memory, and 10.0 GB are "
                      "available: measure less with --bytes or -n");
  }

  for (const std::string collective : {"all_reduce", "all_gather", "reduce"})
    for (const Json& row : rows_of({collective, "-n", "3", "--bytes", "4KB,40KB", "--backends",
                                    "tcp,shm,threads", "--in-place"}))
      CHECK((row.at("in_place") && (collective == "reduce" || row.at("limit_gbps") > 0)));
  const Outcome outcome = bench({"all_reduce", "-n", "2", "--bytes", "4KB,8KB", "--backends",
                                 "threads", "--repeat", "1", "--in-place"});
  const std::string title = "; in place, one buffer on each\n size (B) ";
  CHECK(contains(outcome.out, title));
  CHECK(outcome.out.find(title) == outcome.out.rfind(title));
  CHECK(contains(one_error({"all_reduce", "--in-place", "--nccl-tests"}, 2), "--in-place"));
}

TEST_CASE("bench prints a table and draws a plot") {
  const TemporaryFile plot("ringside-bench-plot-");
  const auto outcome = bench({"all_gather", "-n", "2", "--bytes", "4KB,8KB", "--backends",
                              "tcp,threads", "--repeat", "4", "--svg", plot.path});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  CHECK(contains(outcome.out, "all_gather of fp32, 2 ranks on "));
  CHECK(contains(outcome.out,
                 " size (B) backend  algorithm          time (us)  algbw  busbw   bare ratio "
                 "wrong\n"));
  CHECK(contains(outcome.out, "\n     8000 threads  "));
  const std::string svg = plot.text();
  CHECK(svg.starts_with("<svg xmlns="));
  CHECK(svg.ends_with("</svg>\n"));
  for (const char* word : {"all_gather of fp32", ">2 ranks<", ">tcp<", ">threads<",
                           "prefers-color-scheme: dark", " KB<"})
    CHECK(contains(svg, word));
}

// What nccl-tests prints: size, count, type, redop, root; time, algbw, busbw, #wrong, twice.
TEST_CASE("bench prints the columns of nccl-tests, out of place and in place") {
  struct Line {
    std::string collective, begin;
  };
  for (const auto& [collective, begin] :
       {Line{"all_reduce", "6000          3000  bfloat16    prod      -1"},
        {"all_gather", "6000          3000  bfloat16    none      -1"},
        {"reduce_scatter", "6000          3000  bfloat16    prod      -1"},
        {"broadcast", "6000          3000  bfloat16    none       0"},
        {"reduce", "6000          3000  bfloat16    prod       0"},
        {"gather", "6000          3000  bfloat16    none       0"},
        {"scatter", "6000          3000  bfloat16    none       0"},
        {"all_to_all", "6000          3000  bfloat16    none      -1"}}) {
    CAPTURE(collective);
    const TemporaryFile file("ringside-bench-nccl-");
    const Outcome outcome =
        bench({collective, "-n", "3", "--backends", "threads,shm", "--bytes", "60B,6KB", "--type",
               "bf16", "--op", "product", "--repeat", "1", "--nccl-tests", "--json", file.path});
    CAPTURE(outcome.err);
    CAPTURE(outcome.out);
    CHECK(outcome.exit_code == 0);
    CHECK(contains(outcome.out,
                   "#       size         count      type   redop    root     time   "
                   "algbw   busbw #wrong     time   algbw   busbw #wrong\n"));
    CHECK(contains(outcome.out, " over threads (auto)\n"));
    CHECK(contains(outcome.out, " over shm (auto)\n"));
    const std::string place = " +[0-9.]+ +[0-9.]+ +[0-9.]+      0";
    CHECK(std::regex_search(outcome.out, std::regex(begin + place + place + "\n")));
    CHECK(contains(outcome.out, "\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : "));
    const auto rows = Json::parse(file.text());
    REQUIRE(rows.size() == 8);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      CHECK(rows[i].at("in_place") == (i % 4 >= 2));
      CHECK(rows[i].at("wrong") == 0);
    }
  }
}

TEST_CASE("bench --per-iteration adds how far the samples spread, as nccl-tests -I does") {
  const TemporaryFile file("ringside-bench-nccl-");
  const Outcome outcome = bench({"all_reduce", "-n", "2", "--backends", "threads", "--bytes", "6KB",
                                 "--nccl-tests", "--per-iteration", "--json", file.path});
  CAPTURE(outcome.err);
  CAPTURE(outcome.out);
  REQUIRE(outcome.exit_code == 0);
  const std::string names = "time   algbw   busbw #wrong    i_min    i_max    i_p99    i_cv%";
  CHECK(contains(outcome.out, "redop    root     " + names + "     " + names + "\n"));
  CHECK(contains(outcome.out, " out-of-place (+ per-iteration) "));
  std::istringstream line(outcome.out.substr(outcome.out.find("\n        6000 ") + 1));
  const std::vector<std::string> words{std::istream_iterator<std::string>(line), {}};
  const auto rows = Json::parse(file.text());
  REQUIRE(rows.size() == 2);
  for (std::size_t place = 0; place < rows.size(); ++place) {
    const Json& row = rows[place];
    const double shortest = row.at("min_us"), longest = row.at("max_us"), p99 = row.at("p99_us"),
                 median = row.at("time_us"), variation = row.at("cv");
    CHECK(shortest <= median);
    CHECK(median <= p99);
    CHECK(p99 <= longest);
    // No sample is further from the mean than the shortest is from the longest.
    CHECK(variation >= 0);
    CHECK(variation * shortest <= longest - shortest);
    const std::size_t first = 9 + place * 8;
    CHECK(std::stod(words.at(first)) == doctest::Approx(shortest).epsilon(0.01));
    CHECK(std::stod(words.at(first + 1)) == doctest::Approx(longest).epsilon(0.01));
    CHECK(std::stod(words.at(first + 2)) == doctest::Approx(p99).epsilon(0.01));
    CHECK(std::stod(words.at(first + 3)) ==
          doctest::Approx(variation * 100).epsilon(0.01).scale(1));
  }
  CHECK(contains(one_error({"all_reduce", "--per-iteration"}, 2),
                 "--per-iteration adds columns to those of --nccl-tests: name both"));
}

TEST_CASE("bench checks the results of every collective, type and operation") {
  for (const std::string collective :
       {"reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all"})
    CHECK(rows_of({collective, "-n", "3", "--bytes", "20KB", "--backends", "tcp,shm", "--op", "max",
                   "--type", "int64"})
              .size() == 2);
  CHECK(rows_of({"barrier", "-n", "3", "--backends", "tcp"}).size() == 1);
  for (const std::string op : {"product", "min", "avg"})
    CHECK(rows_of({"all_reduce", "-n", "3", "--bytes", "4004B", "--backends", "threads", "--op", op,
                   "--type", "fp64"})
              .size() == 1);
}

TEST_CASE("bench has a row for each algorithm and names the one that auto selects") {
  const TemporaryFile nowhere("ringside-bench-cache-");
  const Variables built_in{{"XDG_CACHE_HOME", nowhere.path}};
  const auto rows = rows_of({"all_reduce", "-n", "4", "--bytes", "4B,4MB", "--backends",
                             "tcp,threads", "--algorithm", "auto,halving_doubling"},
                            built_in);
  REQUIRE(rows.size() == 8);
  CHECK(rows[0].at("backend") == "tcp");
  CHECK(rows[0].at("algorithm") == "recursive_doubling");  // for 4 bytes
  CHECK(rows[1].at("backend") == "tcp");
  CHECK(rows[1].at("algorithm") == "halving_doubling");
  CHECK(rows[2].at("backend") == "threads");
  CHECK(rows[4].at("algorithm") == "ring");  // for many
  for (const auto& row : rows) CHECK(row.at("algorithm") != "auto");

  Variables forced = built_in;
  forced["RINGSIDE_ALGORITHM"] = "all_reduce=naive";
  CHECK(rows_of({"all_reduce", "-n", "3", "--bytes", "4KB", "--backends", "tcp"}, forced)[0].at(
            "algorithm") == "naive");
  CHECK(rows_of({"all_reduce", "-n", "3", "--bytes", "4KB", "--backends", "shm", "--algorithm",
                 "two_shot"},
                forced)[0]
            .at("algorithm") == "two_shot");
  CHECK(one_error({"all_reduce", "--algorithm", "auto,tree"})
            .starts_with(
                "ringside: there is no algorithm named 'tree' for all_reduce; there are ring, "));
}

TEST_CASE("calibrate measures and saves the costs of messages, and the next run uses them") {
  const TemporaryFile cache("ringside-bench-calibrate-");
  const Variables variables{{"XDG_CACHE_HOME", cache.path}};
  const std::string machine = (cache.path / "machine.json").string();
  std::filesystem::create_directories(cache.path);
  const auto outcome = bench({"--calibrate", "-n", "4", "--backends", "tcp,threads", "--repeat",
                              "4", "--machine", machine},
                             variables);
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  CHECK(outcome.survivors == "");
  CHECK(contains(outcome.out, "Measuring tcp, threads with 2 and 4 ranks on "));
  CHECK(contains(outcome.out, "\npass 2 of 2: 4 ranks\n\n"));
  CHECK(contains(outcome.out, "A message of b bytes takes alpha + beta b, and turn more"));
  CHECK(contains(outcome.out, "\n  tcp            4  all_reduce "));
  const auto path = cache.path / "ringside" / "calibration.json";
  CHECK(contains(outcome.out, "Saved in " + path.string()));
  Json file = Json::parse(read_file(path));
  REQUIRE(file["entries"].size() == 3);
  CHECK(file["entries"][2].at("products") == "fp32");
  for (const auto& [kind, speed] : file["entries"][2].at("onednn_speed").items()) {
    CHECK(contains(outcome.out, "\n  " + kind + " "));
    CHECK((speed > 0.1 && speed < 10));
  }
  for (const int link : {0, 1}) {
    const Json& entry = file["entries"][link];
    CHECK(entry.at("alpha_us") > 0);
    CHECK(entry.at("overhead_us") > 0);
    CHECK(entry.at("alpha_us") >= entry.at("overhead_us"));
    CHECK(entry.at("copy_ns_per_byte").at(2) > 0);
  }
  // A step of a plan on this machine, by its file: at least its FLOPs at the highest rate.
  const auto device = Json::parse(read_file(machine)).at("device");
  CHECK(device.at("matmul_efficiency_by_width").size() == 6);
  CHECK(device.at("kernel_us") > 0);
  const auto told = run_program({ringside_binary, "account", "--model", "lab", "--machine", machine,
                                 "--mesh", "tp=2", "--json", "-"});
  REQUIRE(told.exit_code == 0);
  const auto step = Json::parse(told.out);
  CHECK(step.at("step_seconds").get<double>() >
        step.at("model_flops").get<double>() / 2 / device.at("peak_tflops").get<double>() / 1e12);
  // If a message costs a second, only the number of consecutive messages counts.
  for (auto& entry : file["entries"]) entry["alpha_us"] = 1e6, entry["overhead_us"] = 1;
  std::ofstream(path) << file;
  CHECK(rows_of({"all_reduce", "-n", "4", "--bytes", "4MB", "--backends", "tcp"}, variables)[0].at(
            "algorithm") != "ring");

  std::ofstream(path) << "no JSON";
  const auto broken = bench(
      {"all_reduce", "-n", "3", "--bytes", "4KB", "--backends", "tcp", "--repeat", "4"}, variables);
  CHECK(broken.exit_code == 0);
  CHECK(broken.err.starts_with("ringside: " + path.string() + " is invalid ("));
  CHECK(
      broken.err.ends_with("), so algorithms and libraries are selected as without a "
                           "calibration; ringside bench --calibrate writes a new file\n"));
  CHECK(std::count(broken.err.begin(), broken.err.end(), '\n') ==
        1);  // one sentence, however many ranks
  std::filesystem::remove_all(cache.path);
}

TEST_CASE("calibrate refuses contradicting arguments") {
  const std::string without_collective =
      "ringside: --machine writes what --calibrate measures without a collective: bench "
      "--calibrate --machine FILE\n";
  CHECK(one_error({"all_reduce", "--machine", "here.json"}, 2).starts_with(without_collective));
  CHECK(one_error({"all_reduce", "--calibrate", "--machine", "here.json"}, 2)
            .starts_with(without_collective));
  CHECK(one_error({"scatter", "--calibrate", "--backends", "mpi"}, 2)
            .starts_with("ringside: --calibrate is for tcp, shm and threads, not for mpi: "));
  CHECK(one_error({"barrier", "--calibrate"}, 2)
            .starts_with("ringside: barrier has one algorithm: there is nothing to calibrate\n"));
  CHECK(one_error({"--calibrate", "-n", "2"}, 2)
            .starts_with("ringside: --calibrate compares 2 ranks with more: give -n 3 or more"));
  CHECK(one_error({"--calibrate", "--backends", "tcp,gloo"}, 2)
            .starts_with("ringside: --calibrate is for tcp, shm and threads, not for gloo: "));
  CHECK(
      one_error({}, 2).starts_with("ringside: name what to measure: a collective such as "
                                   "all_reduce, or train, ddp, zero or kernels, or --calibrate\n"));
}

TEST_CASE("the algorithms of a collective are measured and correct the model") {
  const TemporaryFile cache("ringside-bench-corrections-");
  const Variables variables{{"XDG_CACHE_HOME", cache.path}};
  const auto outcome = bench(
      {"all_gather", "--calibrate", "-n", "3", "--backends", "shm", "--repeat", "4"}, variables);
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  CHECK(contains(outcome.out, "Measured time of all_gather / the time by the model:\n"));
  CHECK(contains(outcome.out, "\n  shm, 3 ranks "));
  std::istringstream report(outcome.out);
  for (std::string line; std::getline(report, line);)
    if (!contains(line, cache.path.string())) CHECK(line.size() <= 80);
  const auto file = Json::parse(read_file(cache.path / "ringside" / "calibration.json"));
  REQUIRE(file["entries"].size() == 1);
  // What the command tells is what the selection multiplies with: a ring that is measured to be far
  // slower than the others is not taken.
  auto changed = file;
  for (auto& entry : changed["entries"])
    for (auto& correction : entry["corrections"])
      for (auto& factor : correction["measured_over_walked"]) {
        CHECK((factor >= 0.01 && factor <= 100));
        factor = correction["algorithm"] == "ring" ? 100 : 1;
      }
  std::ofstream(cache.path / "ringside" / "calibration.json") << changed;
  for (const auto& row :
       rows_of({"all_gather", "-n", "3", "--bytes", "4MB", "--backends", "shm"}, variables))
    CHECK(row.at("algorithm") != "ring");
  std::filesystem::remove_all(cache.path);
}

TEST_CASE("the report of a calibration fits 80 columns") {
  // Costs with which all_reduce takes four algorithms, one after the other.
  collectives::MachineCosts costs = collectives::built_in_costs("shm");
  costs.common.cores = 2;
  std::istringstream report(
      cli::calibration_report({{"tcp", costs}, {"shm", costs}, {"threads", costs}}, 16));
  std::string longest;
  const std::string whole = report.str();
  for (std::string line; std::getline(report, line);)
    if (line.size() > longest.size()) longest = line;
  CAPTURE(whole);
  CAPTURE(longest);
  CHECK(longest.size() <= 80);
  for (const char* row : {"\n  shm            4  all_reduce ", "\n  tcp           16  all_gather "})
    CHECK(contains(whole, row));
}

TEST_CASE("bench measures the libraries of this build") {
  if (!cli::bench_backends().at(3).available) MESSAGE("skipped: this build has no Gloo");
  if (!cli::bench_backends().at(4).available) MESSAGE("skipped: this build has no MPI");
  for (const auto& backend : cli::bench_backends()) {
    if (!backend.available ||
        (backend.name != "gloo" && backend.ranks_run_as != cli::RanksRunAs::mpirun))
      continue;
    CAPTURE(backend.name);
    for (const std::string collective :
         {"all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter"}) {
      if (collective == "reduce_scatter" && backend.name == "gloo") continue;
      const auto rows =
          rows_of({collective, "-n", "2", "--bytes", "20KB", "--backends", "tcp," + backend.name});
      REQUIRE(rows.size() == 2);
      CHECK(rows[1].at("algorithm") == "library");
      CHECK(rows[1].at("backend") == backend.name);
    }
  }
}

TEST_CASE("without a GPU the GPU backends are refused in one sentence") {
  const auto missing = collectives::cuda::what_is_missing();
  if (!missing) {
    MESSAGE("SKIPPED: this machine has a GPU");
    return;
  }
  for (const std::string name : {"cuda_kernels", "cuda_ipc", "nccl"})
    CHECK(one_error({"all_reduce", "--backends", "tcp," + name}) ==
          "ringside: " + name + " cannot be measured: " + *missing + "\n");
}

TEST_CASE("bench reports wrong arguments before it starts ranks") {
  CHECK(one_error({"all_reduce", "--backends", "tpc"})
            .starts_with("ringside: there is no backend named 'tpc' (did you mean tcp?); this "
                         "build has tcp, "));
  CHECK(one_error({"all_reduice"})
            .starts_with("ringside: there is no collective named 'all_reduice' (did you mean "
                         "all_reduce?); there "));
  CHECK(one_error({"all_reduce", "--bytes", "4 MBs"}) ==
        "ringside: '4 MBs' is not a number of bytes: write 4B, 64KB (64000 bytes), 64KiB (65536 "
        "bytes), 10MB or 1GB\n");
  CHECK(one_error({"all_reduce", "--bytes", "3B"}, 2)
            .starts_with("ringside: --bytes 3B is too small for one element of fp32\n"));
  CHECK(
      one_error({"all_reduce", "--type", "fp33"})
          .starts_with("ringside: there is no type named 'fp33' (did you mean fp32?); there are "));
  CHECK(one_error({"all_reduce", "--op", "mean"})
            .starts_with("ringside: there is no operation named 'mean'; there are sum, "));
  const auto memory = one_error({"all_reduce", "-n", "2,6", "--bytes", "1MB,10TB"});
  CHECK(memory.starts_with(
      "ringside: 6 ranks with 1 buffer of 10 TB each need 60000.0 GB of memory, and "));
  CHECK(memory.ends_with(" GB are available: measure less with --bytes or -n\n"));
}

TEST_CASE("bench collects the figures of its ranks without a folder for temporary files") {
  CHECK(rows_of({"barrier", "-n", "2", "--backends", "tcp"}, {{"TMPDIR", "/nowhere"}}).size() == 1);
}

TEST_CASE("parse_bytes and bytes_to_text know decimal and binary units") {
  CHECK(cli::parse_bytes("4") == 4);
  CHECK(cli::parse_bytes("4B") == 4);
  CHECK(cli::parse_bytes("1.5KB") == 1500);
  CHECK(cli::parse_bytes("1.5 KiB") == 1536);
  CHECK(cli::parse_bytes("100MB") == 100000000);
  CHECK(cli::parse_bytes("1GiB") == 1073741824);
  for (const std::string text : {"", "B", "-4B", "0.5B", "4b", "4 M B", "1e30GB"})
    CHECK_THROWS_AS(cli::parse_bytes(text), Error);
  CHECK(cli::bytes_to_text(64000) == "64 KB");
  CHECK(cli::bytes_to_text(65536) == "65536 B");
}

TEST_CASE("the wrong elements of a result are counted") {
  collectives::Call call;
  call.collective = Collective::all_gather;
  call.count = 3000;
  const cli::BenchData data(call, 1, 3);
  CHECK(data.wrong() == 3000);  // nothing has been gathered yet
  CHECK(data.memory_bytes() == 12000);

  call.collective = Collective::all_reduce;
  const cli::BenchData alone(call, 0, 1);
  auto* out = static_cast<float*>(alone.output());
  std::copy_n(static_cast<const float*>(alone.input()), 3000, out);  // the sum over one rank
  CHECK(alone.wrong() == 0);
  out[17] += 1;
  std::swap_ranges(out + 1000, out + 1010, out + 2000);
  CHECK(alone.wrong() > 1);
  CHECK(alone.wrong() <= 21);
}
