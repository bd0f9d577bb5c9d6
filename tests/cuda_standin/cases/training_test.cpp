// `ringside train --device cuda` and the benches of several processes, with a GPU each.
#include <algorithm>
#include <regex>

#include "base/read_file.hpp"
#include "tests/cli/commands/train/training.hpp"
#include "tests/sample.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

// The reports of the processes that were ranks, without the word "rank", sorted by rank.
std::vector<std::string> reports_of_ranks(const std::filesystem::path& file) {
  std::vector<std::string> ranks;
  for (const std::string& line : sorted_lines(read_file(file)))
    if (line.starts_with("rank ") && !line.starts_with("rank -")) ranks.push_back(line.substr(5));
  return ranks;
}

}  // namespace

TEST_CASE("training on GPUs follows the CPU, with every strategy and backend") {
  const Training training({"--steps", "4"});
  CHECK(training.run({"--dump", training.path("cpu").string()}).err == "");
  struct Case {
    Command options;
    const char* devices;
  };
  int number = 0;
  for (const Case& one : {Case{{}, "1"},
                          {{"-n", "3", "--parallel", "bucketed"}, "1"},
                          {{"-n", "3", "--parallel", "zero3"}, "8"},
                          {{"-n", "2", "--device-backend", "nccl"}, "8"},
                          {{"-n", "4", "--mesh", "dp=2,tp=2"}, "8"}}) {
    CAPTURE(one.options);
    Command command = {"--device", "cuda"};
    command.insert(command.end(), one.options.begin(), one.options.end());
    const std::string dump = training.path("cuda" + std::to_string(number++)).string();
    command.insert(command.end(), {"--dump", dump});
    const Outcome outcome = training.run(command, {{"RINGSIDE_STANDIN_DEVICES", one.devices}});
    CHECK(outcome.err == "");
    CHECK(outcome.exit_code == 0);
    CHECK(contains(outcome.out, "device   cuda: stand-in for a GPU\n"));
    CHECK(largest_difference_of(training.path("cpu") / "step0004.safetensors",
                                std::filesystem::path(dump) / "step0004.safetensors") < 1e-4);
  }
}

TEST_CASE("what the backends of GPUs cannot call is said before a rank starts") {
  const Training training({"--device", "cuda", "-n", "2"});
  const auto refused = [&](Command options) {
    const Outcome outcome = training.run(options, {{"RINGSIDE_STANDIN_DEVICES", "8"}});
    CHECK(outcome.exit_code != 0);
    return outcome.err;
  };
  const std::string instead =
      ", which the backends of GPUs do not have: train on axes dp, fsdp, tp and cp "
      "(--context all_gather), or leave out --device\n";
  CHECK(contains(refused({"--mesh", "pp=2"}), "a pipeline (pp) needs send and recv" + instead));
  CHECK(contains(refused({"--mesh", "cp=2", "--context", "ulysses"}),
                 "--context ulysses needs all_to_all" + instead));
  CHECK(contains(refused({"--mesh", "ep=2", "--experts", "4"}),
                 "expert parallel (ep) needs all_to_all" + instead));
}

TEST_CASE("each rank makes a context on its own GPU only, and leaves nothing open") {
  const Training training({"-n", "8", "--steps", "2", "--batch", "16", "--device", "cuda"});
  const auto report = training.path("report");
  const Outcome outcome = training.run(
      {}, {{"RINGSIDE_STANDIN_DEVICES", "8"}, {"RINGSIDE_STANDIN_REPORT", report.string()}});
  CHECK(outcome.err == "");
  CHECK(outcome.exit_code == 0);
  const auto ranks = reports_of_ranks(report);
  REQUIRE(ranks.size() == 8);
  for (int r = 0; r < 8; ++r) {
    const std::string& line = ranks[static_cast<std::size_t>(r)];
    CAPTURE(line);
    CHECK(line.starts_with(fmt::format("{}: contexts {}; opened 0; allocations 0;", r, r)));
    CHECK(line.ends_with("violations "));
  }
}

// In each step every GPU is read by one other: no GPU serves all ranks at once. Ranks 0 and 3 share
// a GPU, so data move by copies. (An all_reduce reads in a kernel, from the next rank's area on.)
TEST_CASE("ranks of cuda_ipc that share a GPU copy from their neighbours first") {
  const Training training({});
  const auto report = training.path("all_gather");
  const Outcome outcome =
      run_program({ringside_binary, "bench", "all_gather", "-n", "4", "--bytes", "4096B",
                   "--backends", "cuda_ipc", "--repeat", "1", "--warmup", "0"},
                  {{"RINGSIDE_STANDIN_DEVICES", "3"}, {"RINGSIDE_STANDIN_REPORT", report.string()}},
                  Seconds(60));
  CHECK(outcome.err == "");
  CHECK(outcome.exit_code == 0);
  const auto ranks = reports_of_ranks(report);
  REQUIRE(ranks.size() == 4);
  for (int r = 0; r < 4; ++r)
    CHECK(contains(
        ranks[static_cast<std::size_t>(r)],
        fmt::format("; reads {},{},{}", (r + 1) % 4 % 3, (r + 2) % 4 % 3, (r + 3) % 4 % 3)));
}

TEST_CASE("whichever call fails, ranks of cuda_ipc end with a sentence") {
  for (const char* devices : {"1", "8"}) {
    CAPTURE(devices);
    int failed = 0;
    for (int n = 3; n < 120; n += 6) {
      CAPTURE(n);
      const Outcome outcome = run_program(
          {ringside_binary, "bench", "all_reduce", "-n", "2", "--bytes", "4096B", "--backends",
           "cuda_ipc", "--repeat", "1", "--warmup", "0"},
          {{"RINGSIDE_STANDIN_FAIL", std::to_string(n)}, {"RINGSIDE_STANDIN_DEVICES", devices}},
          Seconds(60));
      CHECK(!outcome.timed_out);
      CHECK(outcome.signal == 0);
      CHECK(outcome.survivors == "");
      if (outcome.exit_code != 0) {
        ++failed;
        CAPTURE(outcome.err);
        CHECK((contains(outcome.err, "unknown error") || contains(outcome.err, "driver error")));
      }
    }
    CHECK(failed > 8);
  }
}

TEST_CASE("collectives in place on GPUs, beside NCCL, in the columns of nccl-tests") {
  Sample sample;
  for (const std::string collective : {"all_reduce", "reduce_scatter", "all_gather", "broadcast"})
    for (const std::string devices : {"3", "1"}) {
      if (!sample.takes()) continue;
      CAPTURE(collective);
      CAPTURE(devices);
      const std::string backends = devices == "1" ? "cuda_kernels,cuda_ipc" : "cuda_ipc,nccl";
      const Outcome outcome =
          run_program({ringside_binary, "bench", collective, "-n", "3", "--bytes", "4800B,48KB",
                       "--backends", backends, "--repeat", "1", "--queued", "3", "--nccl-tests"},
                      {{"RINGSIDE_STANDIN_DEVICES", devices}}, Seconds(60));
      CAPTURE(outcome.out);
      CAPTURE(outcome.err);
      CHECK(outcome.exit_code == 0);
      CHECK(contains(outcome.out, " over cuda_ipc (auto)\n"));
      CHECK(contains(outcome.out,
                     devices == "1" ? " over cuda_kernels (auto)\n" : " over nccl (library)\n"));
      CHECK(!contains(outcome.out, "FAILED"));
    }
}

// With two ranks a two-shot sends as many bytes as the gradients have, and so does a copy of all.
TEST_CASE("bench ddp shows the bytes that GPUs send") {
  for (const char* devices : {"2", "1"}) {
    CAPTURE(devices);
    const Outcome outcome = run_program(
        {ringside_binary, "bench", "ddp", "-n", "2", "--device", "cuda", "--model", "tiny",
         "--batch", "1", "--sequence", "16", "--steps", "1", "--strategies", "flat", "--json", "-"},
        {{"RINGSIDE_STANDIN_DEVICES", devices}}, Seconds(100));
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    const auto json = Json::parse(outcome.out);
    const double gradients = json.at("bucket_model").at("gradient_bytes"),
                 sent = json.at("rows").back().at("bytes_sent");
    CHECK(sent >= gradients);
    CHECK(sent < gradients * 1.01 + 100);
  }
}

TEST_CASE("NCCL may be older than the header, but not older than what is used of it") {
  const auto bench = [](const char* version) {
    return run_program({ringside_binary, "bench", "all_reduce", "-n", "1", "--bytes", "4KB",
                        "--backends", "nccl", "--repeat", "1"},
                       {{"RINGSIDE_STANDIN_NCCL", version}}, ringside::Seconds(100));
  };
  const auto older = bench("21805");
  CAPTURE(older.err);
  CHECK(older.exit_code == 0);
  const auto too_old = bench("21403");
  CAPTURE(too_old.err);
  CHECK(too_old.exit_code != 0);
  CHECK(contains(too_old.err,
                 "expected libnccl.so.2 to be NCCL 2.18.0 or newer, got 2.14.3: install a newer "
                 "NCCL"));
}

TEST_CASE(
    "bench measures NCCL with plain buffers, with registered ones, and with symmetric windows") {
  const auto bench = [](const std::string& backends, const char* version) {
    return run_program({ringside_binary, "bench", "all_reduce", "-n", "3", "--bytes", "48KB",
                        "--backends", backends, "--repeat", "1", "--queued", "3"},
                       {{"RINGSIDE_STANDIN_DEVICES", "3"},
                        {"RINGSIDE_STANDIN_NCCL", version},
                        {"RINGSIDE_STANDIN_NCCL_COUNTS", "1"}},
                       Seconds(100));
  };
  const Outcome measured = bench("nccl,nccl_registered,nccl_symmetric", "22809");
  CAPTURE(measured.out);
  CAPTURE(measured.err);
  REQUIRE(measured.exit_code == 0);
  const auto ranks_that_say = [&](const char* counts) {
    const std::regex line(std::string("rank \\d: \\d+ calls, ") + counts);
    return std::distance(std::sregex_iterator(measured.err.begin(), measured.err.end(), line), {});
  };
  CHECK(ranks_that_say("0 registered, 0 in windows") == 3);
  CHECK(ranks_that_say("[1-9]\\d* registered, 0 in windows") == 3);
  CHECK(ranks_that_say("0 registered, [1-9]\\d* in windows") == 3);
  for (const char* row : {" nccl ", " nccl_registered ", " nccl_symmetric "})
    CHECK(contains(measured.out, row));
  CHECK(contains(measured.out, " size (B) backend         algorithm "));
  CHECK(contains(measured.out, "    48000 nccl_symmetric  library "));

  const Outcome older = bench("nccl_symmetric", "22603");
  CHECK(older.exit_code != 0);
  CHECK(contains(older.err,
                 "nccl_symmetric needs NCCL 2.27.0 or newer, in the library and in the header of "
                 "the build, and one of them is 2.26.3: install a newer one, or measure nccl "
                 "alone"));
}

TEST_CASE(
    "bench says what NCCL has chosen for each size, and times calls that NCCL does not tell") {
  const auto bench = [](const std::vector<std::string>& options, const Variables& variables = {}) {
    Command command{ringside_binary, "bench",      "all_reduce", "-n", "3",
                    "--bytes",       "4800B,48KB", "--repeat",   "1"};
    command.insert(command.end(), options.begin(), options.end());
    Variables all{{"RINGSIDE_STANDIN_DEVICES", "3"}, {"RINGSIDE_STANDIN_NCCL_COUNTS", "1"}};
    all.insert(variables.begin(), variables.end());
    return run_program(command, all, Seconds(100));
  };
  for (const std::vector<std::string>& queued :
       {std::vector<std::string>{}, {"--queued", "3"}, {"--queued", "3", "--graph"}}) {
    std::vector<std::string> options{"--backends", "nccl,nccl_symmetric", "--json", "-"};
    options.insert(options.end(), queued.begin(), queued.end());
    const Outcome measured = bench(options);
    CAPTURE(measured.err);
    REQUIRE(measured.exit_code == 0);
    const Json rows = Json::parse(measured.out);
    REQUIRE(rows.size() == 4);
    CHECK(rows[0].at("choice") == "TREE LL x2");
    CHECK(rows[2].at("choice") == "RING SIMPLE x2");
    for (const int symmetric : {1, 3}) CHECK(rows[symmetric].at("choice") == "library");
    for (const Json& row : rows) CHECK(row.at("algorithm") == "library");
    // Of each block the first call, or its first sample, is told; and no other one.
    std::smatch counts;
    REQUIRE(
        std::regex_search(measured.err, counts,
                          std::regex("(\\d+) calls, 0 registered, 0 in windows.* (\\d+) told")));
    CHECK(std::stoi(counts[2]) > 0);
    CHECK(std::stoi(counts[2]) * 2 < std::stoi(counts[1]));
  }
  const Outcome table = bench({"--backends", "cuda_ipc,nccl"});
  CHECK(std::regex_search(table.out, std::regex("48000 nccl +RING SIMPLE x2 ")));
  for (const Variables& silent : {Variables{{"NCCL_PROFILER_PLUGIN", "none"}},
                                  Variables{{"RINGSIDE_STANDIN_NCCL", "22603"}}}) {
    const Outcome unknown = bench({"--backends", "nccl"}, silent);
    CAPTURE(unknown.err);
    CHECK(std::regex_search(unknown.out, std::regex("48000 nccl +library ")));
  }
}

TEST_CASE("bench captures queued calls as a CUDA graph") {
  const auto bench = [](const Command& options) {
    Command command{ringside_binary, "bench", "all_reduce", "-n", "3",
                    "--bytes",       "48KB",  "--repeat",   "3",  "--graph"};
    command.insert(command.end(), options.begin(), options.end());
    return run_program(command, {{"RINGSIDE_STANDIN_DEVICES", "3"}}, Seconds(100));
  };
  const Outcome measured =
      bench({"--backends", "cuda_ipc,nccl,nccl_symmetric", "--queued", "4", "--json", "-"});
  CAPTURE(measured.err);
  REQUIRE(measured.exit_code == 0);
  const Json rows = Json::parse(measured.out);
  REQUIRE(rows.size() == 3);
  CHECK(rows[2].at("backend") == "nccl_symmetric graph");
  for (const Json& row : rows) {
    CHECK(row.at("wrong") == 0);
    CHECK(row.at("time_us") > 0);
  }
  CHECK(contains(bench({"--backends", "cuda_ipc"}).err,
                 "--graph captures the calls of --queued: name how many"));
  CHECK(contains(bench({"--backends", "cuda_kernels", "--queued", "4"}).err,
                 "--graph: the ranks of cuda_kernels share a stream, so none can capture it"));
}

TEST_CASE("bench makes a group of queued calls, which NCCL starts together") {
  const auto bench = [](const Command& options) {
    Command command{ringside_binary, "bench", "all_reduce", "-n", "3",
                    "--bytes",       "48KB",  "--repeat",   "3",  "--group"};
    command.insert(command.end(), options.begin(), options.end());
    return run_program(command,
                       {{"RINGSIDE_STANDIN_DEVICES", "3"}, {"RINGSIDE_STANDIN_NCCL_COUNTS", "1"}},
                       Seconds(100));
  };
  const Outcome measured = bench({"--backends", "nccl", "--queued", "4", "--json", "-"});
  CAPTURE(measured.err);
  REQUIRE(measured.exit_code == 0);
  const Json rows = Json::parse(measured.out);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].at("backend") == "nccl group");
  CHECK(rows[0].at("wrong") == 0);
  // Some samples, each a group of four.
  std::smatch counts;
  REQUIRE(std::regex_search(measured.err, counts, std::regex("(\\d+) in groups")));
  CHECK(std::stoi(counts[1]) > 0);
  CHECK(std::stoi(counts[1]) % 4 == 0);
  CHECK(contains(bench({"--backends", "nccl"}).err,
                 "--group makes a group of the calls of --queued: name how many"));
  CHECK(contains(bench({"--backends", "nccl,cuda_ipc", "--queued", "4"}).err,
                 "--group: expected backends of NCCL, which has groups of calls, got cuda_ipc"));
}
