// The output of --link, --trace, --report and `bench ddp`, and the report in a real browser.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/cli/report/markup.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/text.hpp"
#include "tests/transformer/temporary_directory.hpp"

namespace ringside::cli {
namespace {

using nlohmann::json;
using testing::Outcome;
using testing::ringside_binary;
using testing::run_program;
using tests::contains;
using tests::read_file;
using tests::what_is_malformed;
using Command = std::vector<std::string>;

// Six steps on three ranks, of a model that takes milliseconds.
Outcome train(const TemporaryDirectory& directory, const Command& more) {
  std::string text;
  for (int i = 0; i < 500; ++i)
    text += fmt::format("line {} of a text that means little;\n", i * i);
  const auto path = directory.write("text.txt", text);
  Command command = {ringside_binary, "train", "-n",         "3",  "--data",  path.string(),
                     "--d-model",     "16",    "--layers",   "2",  "--heads", "2",
                     "--d-ff",        "20",    "--sequence", "12", "--batch", "12",
                     "--threads",     "1",     "--steps",    "6"};
  command.insert(command.end(), more.begin(), more.end());
  return run_program(command, {}, Seconds(60));
}

// The number of spans of each name in a trace, by rank and track.
std::map<std::pair<int, std::string>, std::map<std::string, int>> contents(const json& trace) {
  std::map<std::pair<int, int>, std::string> tracks;
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("name") == "thread_name")
      tracks[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
  std::map<std::pair<int, std::string>, std::map<std::string, int>> seen;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const auto track = tracks.find({event.at("pid"), event.at("tid")});
    REQUIRE_MESSAGE(track != tracks.end(), "a span without a track: ", event.dump());
    CHECK(event.at("ts").get<double>() >= 0);
    CHECK(event.at("dur").get<double>() >= 0);
    ++seen[{event.at("pid"), track->second}][event.at("name")];
  }
  return seen;
}

}  // namespace

TEST_CASE("a trace of a training run has the phases and calls of every rank in their tracks") {
  const TemporaryDirectory directory;
  for (const char* backend : {"shm", "threads"}) {
    const auto file = directory.path() / "trace.json";
    const auto outcome =
        train(directory, {"--parallel", "overlap", "--backend", backend, "--trace", file.string()});
    REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.err);
    CHECK(contains(outcome.out, "trace    " + file.string()));
    auto seen = contents(json::parse(read_file(file)));
    CHECK(seen.size() == 6);
    for (int rank = 0; rank < 3; ++rank) {
      auto& compute = seen[{rank, "compute"}];
      for (const char* name : {"step 3", "step 4", "step 5"})
        CHECK_MESSAGE(compute[name] == 1, rank, " ", name);
      for (const char* name : {"step 2", "step 6"})
        CHECK_MESSAGE(compute[name] == 0, rank, " ", name);
      for (const char* name :
           {"forward", "backward", "finish gradients", "clip", "optimizer", "loss of all ranks"})
        CHECK_MESSAGE(compute[name] == 3, rank, " ", name);
      CHECK(compute["linear"] > 0);
      CHECK(compute["linear backward"] == compute["linear"]);
      // A call for each of 2 layers of 9 parameters, embedding, norm and head, and one for the
      // loss. The rank's thread waits for each.
      CHECK(seen[{rank, "communication"}] ==
            std::map<std::string, int>{{"all_reduce", 3 * (21 + 1)}});
      CHECK(compute["wait for all_reduce"] == 3 * (21 + 1));
    }
  }
}

TEST_CASE("spans lie within their step and the calls of a rank do not overlap") {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "trace.json";
  const auto outcome = train(directory, {"--parallel", "naive", "--backend", "tcp", "--trace",
                                         file.string(), "--trace-steps", "2"});
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.err);
  const json trace = json::parse(read_file(file));
  std::map<int, std::pair<double, double>> step;
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("name") == "step 2")
      step[event.at("pid")] = {event.at("ts"),
                               event.at("ts").get<double>() + event.at("dur").get<double>()};
  CHECK(step.size() == 3);
  std::map<int, double> call_end;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts"), end = begin + event.at("dur").get<double>();
    CHECK(begin >= step[event.at("pid")].first - 1);
    CHECK(end <= step[event.at("pid")].second + 1);
    if (event.at("cat") != "call") continue;
    CHECK(begin >= call_end[event.at("pid")] - 1);
    call_end[event.at("pid")] = end;
  }
}

TEST_CASE("steps that the run does not take cannot be traced") {
  const TemporaryDirectory directory;
  const auto file = (directory.path() / "trace.json").string();
  auto outcome = train(directory, {"--trace", file, "--trace-steps", "7-9"});
  CHECK(outcome.exit_code == 1);
  CHECK(contains(outcome.err, "cannot trace steps 7 to 9: the run takes steps 1 to 6"));
  outcome = train(directory, {"--trace", file, "--trace-steps", "5-4"});
  CHECK(contains(outcome.err, "'5-4' is not a range of steps: write 3-5, or 4 for one step"));
  outcome = train(directory, {"--report", "/nowhere/report.html"});
  CHECK(contains(outcome.err,
                 "cannot write the report to /nowhere/report.html: No such file or directory"));
}

TEST_CASE("a training run's report shows tracks and memory and loss") {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "report.html";
  const auto outcome = train(directory, {"--parallel", "bucketed", "--report", file.string()});
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.err);
  CHECK(contains(outcome.out, fmt::format("report   {} (open it in a browser)", file.string())));
  const std::string page = read_file(file);
  CHECK(what_is_malformed(page) == "");
  CHECK(!contains(page, "http"));
  for (const char* part :
       {"What the ranks did in step 5", "<h3>rank 2</h3>", "Memory of rank 0 over one step",
        "Loss over steps", ">activations</text>", ">optimizer state</text>", "class=\"wait\"",
        "bucket 0"})
    CHECK_MESSAGE(contains(page, part), part);
}

TEST_CASE("bench ddp reports the calls, the bytes and the exposed time of each strategy") {
  const TemporaryDirectory directory;
  const auto figures = directory.path() / "ddp.json", report = directory.path() / "ddp.html",
             svg = directory.path() / "ddp.svg";
  const auto outcome = run_program({ringside_binary,
                                    "bench",
                                    "ddp",
                                    "-n",
                                    "2",
                                    "--model",
                                    "tiny",
                                    "--batch",
                                    "1",
                                    "--sequence",
                                    "16",
                                    "--threads",
                                    "1",
                                    "--steps",
                                    "3",
                                    "--buckets",
                                    "1,1000",
                                    "--json",
                                    figures,
                                    "--report",
                                    report,
                                    "--svg",
                                    svg},
                                   {}, Seconds(90));
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.err);
  CHECK(contains(outcome.out, "tiny: "));
  CHECK(contains(outcome.out, "no communication"));
  CHECK(contains(outcome.out, "bucket model: o = "));
  const json all = json::parse(read_file(figures));
  const std::int64_t bytes = all.at("bucket_model").at("gradient_bytes");
  std::map<std::string, json> rows;
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
  CHECK(contains(page, fmt::format("<td>{:.1f}</td>", rows["naive"].at("step_ms").get<double>())));
  CHECK(what_is_malformed(read_file(svg)) == "");
}

TEST_CASE("bench ddp chooses four bucket sizes with the predicted best among them") {
  const TemporaryDirectory directory;
  const auto figures = directory.path() / "ddp.json";
  const Outcome outcome = run_program({ringside_binary,
                                       "bench",
                                       "ddp",
                                       "-n",
                                       "2",
                                       "--model",
                                       "tiny",
                                       "--batch",
                                       "1",
                                       "--sequence",
                                       "16",
                                       "--threads",
                                       "1",
                                       "--steps",
                                       "1",
                                       "--strategies",
                                       "bucketed",
                                       "--link",
                                       "100Mbps,50us",
                                       "--json",
                                       figures},
                                      {}, Seconds(90));
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.err);
  const json all = json::parse(read_file(figures));
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
  const TemporaryDirectory directory;
  const auto figures = directory.path() / "ddp.json";
  const Command small = {ringside_binary,
                         "bench",
                         "ddp",
                         "-n",
                         "2",
                         "--model",
                         "tiny",
                         "--batch",
                         "1",
                         "--sequence",
                         "16",
                         "--threads",
                         "1",
                         "--steps",
                         "2",
                         "--strategies",
                         "flat,bucketed",
                         "--buckets",
                         "1"};
  const auto with = [&](const Command& more) {
    Command all = small;
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all, {}, Seconds(60));
  };
  const auto outcome = with({"--backend", "tcp,shm", "--json", figures});
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.err);
  CHECK(contains(outcome.out, "2 ranks over tcp\n"));
  CHECK(
      contains(outcome.out, "\n\ntiny: 857k parameters, 3.4 MB of gradients; 2 ranks over shm\n"));
  const json all = json::parse(read_file(figures));
  REQUIRE(all.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const json& rows = all[i].at("rows");
    REQUIRE(rows.size() == 3);
    for (const json& row : rows) CHECK(row.at("backend") == (i == 0 ? "tcp" : "shm"));
    CHECK(rows[0].at("step_ms") == all[0].at("rows")[0].at("step_ms"));
    CHECK(rows[1].at("strategy") == "flat");
    CHECK(rows[2].at("bytes_sent") == all[i].at("bucket_model").at("gradient_bytes"));
  }
  CHECK(with({"--backend", "tcp,threads"}).err ==
        "ringside: --backend threads keeps all ranks in one process, so no other backend can take "
        "turns with it: name it alone\nTry: ringside bench --help\n");
  CHECK(with({"--backend", "tcp,shm", "--report", figures}).err ==
        "ringside: --svg and --report show one backend: name one with --backend, or leave them "
        "out\nTry: ringside bench --help\n");
  CHECK(contains(with({"--memory-limit", "0.01"}).err, "ringside: this needs about 0.0"));
}

TEST_CASE("an emulated link slows a run down, and is refused where it is impossible") {
  const auto outcome = run_program(
      {ringside_binary, "bench", "all_reduce", "-n", "2", "--bytes", "1MB", "--backends",
       "shm,threads", "--link", "500Mbps,1ms", "--repeat", "2", "--json", "/dev/stdout"},
      {}, Seconds(60));
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.err);
  CHECK(contains(outcome.err, "every rank behind a link of 500 Mbps, 1 ms"));
  const json rows = json::parse(outcome.out);
  for (const auto& row : rows) {
    // Pipelined slices hide a part of the second latency.
    CHECK(row.at("time_us").get<double>() >= 1000 + 2 * 1e6 / 2 / 62.5);
    CHECK(row.at("time_us").get<double>() < 6 * 2 * (1000 + 1e6 / 2 / 62.5));
    CHECK(row.at("limit_gbps").get<double>() == doctest::Approx(0.0625));
    CHECK(row.at("wrong") == 0);
  }
  const auto error_of = [](const Command& more) {
    Command command = {ringside_binary};
    command.insert(command.end(), more.begin(), more.end());
    return run_program(command).err;
  };
  CHECK(contains(error_of({"hello", "-n", "2", "--link", "fast"}),
                 "'fast' is no link: 1Gbps,50us is one"));
  CHECK(contains(error_of({"bench", "all_reduce", "--backends", "tcp,gloo", "--link", "1Gbps"}),
                 "--link slows down tcp, shm and threads, but not gloo"));
  CHECK(contains(
      error_of({"bench", "--calibrate", "--link", "1Gbps"}),
      "--calibrate measures this machine as it is: leave out --link, and unset RINGSIDE_LINK"));
  const auto variable =
      run_program({ringside_binary, "hello", "-n", "1"}, {{"RINGSIDE_LINK", "1MB/s"}});
  CHECK(contains(variable.err, "RINGSIDE_LINK: '1MB/s' is no link"));
}

// The page in a browser: its script runs without an error.
TEST_CASE("a browser opens the report and finds no error") {
  const char* browser = nullptr;
  for (const char* path :
       {"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"})
    if (!browser && ::access(path, X_OK) == 0) browser = path;
  if (!browser) {
    MESSAGE("SKIPPED: needs a browser (apt-get install chromium)");
    return;
  }
  const TemporaryDirectory directory;
  const auto file = directory.path() / "report.html";
  const auto trained = train(directory, {"--parallel", "naive", "--report", file.string()});
  REQUIRE_MESSAGE(trained.exit_code == 0, trained.err);
  // A script of the test presses arrow keys and writes the result into the page.
  std::string page = read_file(file);
  const char* press = R"(<script>
    const press = key => {
      const event = new KeyboardEvent('keydown', { key: key, bubbles: true });
      document.activeElement.dispatchEvent(event);
      return document.activeElement.getAttribute('aria-label') + ' / ' +
          document.querySelector('.says').textContent;
    };
    document.querySelector('.lane [tabindex="0"]').focus();
    document.body.dataset.right = press('ArrowRight');
    document.body.dataset.left = press('ArrowLeft');
    document.body.dataset.down = press('ArrowDown');
  </script></body>)";
  page.replace(page.rfind("</body>"), 7, press);
  std::ofstream(file) << page;
  const auto seen = run_program(
      {browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
       "--no-first-run", "--enable-logging=stderr", "--virtual-time-budget=2000",
       "--user-data-dir=" + (directory.path() / "browser").string(), "--dump-dom",
       "file://" + file.string()},
      {{"HOME", directory.path().string()}}, Seconds(60));
  CHECK_MESSAGE(seen.exit_code == 0, seen.err);
  CHECK_MESSAGE(!contains(seen.err, "CONSOLE"), seen.err);
  CHECK(contains(seen.out, "tabindex=\"0\""));  // the first action of the script
  CHECK(contains(seen.out, "What the ranks did in step 5"));
  const auto noted = [&](const std::string& key) {
    const auto begin = seen.out.find("data-" + key + "=\"");
    return begin == std::string::npos
               ? ""
               : seen.out.substr(begin, seen.out.find('"', begin + key.size() + 7) - begin);
  };
  CHECK_MESSAGE(contains(noted("right"), "Rank 0: backward"), noted("right"));
  // The description below the figure follows.
  CHECK_MESSAGE(contains(noted("right"), "/ Rank 0: backward"), noted("right"));
  CHECK_MESSAGE(contains(noted("left"), "Rank 0: forward"), noted("left"));
  CHECK_MESSAGE(contains(noted("down"), "Rank 0: all_reduce"), noted("down"));
}

}  // namespace ringside::cli
