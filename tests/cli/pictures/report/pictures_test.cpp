// The output of --link, --trace and --report, and the report in a real browser.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>

#include <unistd.h>

#include <fmt/format.h>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "cli/pictures/report/report.hpp"
#include "cli/pictures/tracks_figure.hpp"
#include "tests/cli/browser.hpp"
#include "tests/cli/pictures/report/markup.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/text.hpp"
#include "tests/transformer/temporary_directory.hpp"

namespace ringside::cli {
namespace {

using testing::Outcome;
using testing::ringside_binary;
using testing::run_program;
using tests::contains;
using tests::what_is_malformed;
using Command = std::vector<std::string>;

// Six steps on three ranks, of a model that takes milliseconds.
Outcome train(const TemporaryDirectory& directory, const Command& more,
              const testing::Variables& variables = {}) {
  std::string text;
  for (int i = 0; i < 500; ++i)
    text += fmt::format("line {} of a text that means little;\n", i * i);
  const auto path = directory.write("text.txt", text);
  Command command = {ringside_binary, "train", "-n",         "3",  "--data",  path.string(),
                     "--d-model",     "16",    "--layers",   "2",  "--heads", "2",
                     "--d-ff",        "20",    "--sequence", "12", "--batch", "12",
                     "--threads",     "1",     "--steps",    "6"};
  command.insert(command.end(), more.begin(), more.end());
  return run_program(command, variables, Seconds(60));
}

// The number of spans of each name in a trace, by rank and track.
std::map<std::pair<int, std::string>, std::map<std::string, int>> contents(const Json& trace) {
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
        train(directory, {"--parallel", "overlap", "--backend", backend, "--trace", file.string()},
              {{"RINGSIDE_ALGORITHM", "all_reduce=ring"}});
    REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.err);
    CHECK(contains(outcome.out, "chrome://tracing: " + file.string()));
    auto seen = contents(Json::parse(read_file(file)));
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
      auto& calls = seen[{rank, "communication"}];
      CHECK(calls["all_reduce"] == 3 * (21 + 1));
      for (const char* step : {"step 0", "step 1", "step 2", "step 3"})
        CHECK(calls[std::string("all_reduce ") + step] == 3 * (21 + 1));
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
  const Json trace = Json::parse(read_file(file));
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
  CHECK(contains(outcome.out, fmt::format("report, to open in a browser: {}\n", file.string())));
  const std::string page = read_file(file);
  CHECK(what_is_malformed(page) == "");
  CHECK(!contains(page, "http"));
  const Json figures = tests::data_of_report(page).at("figures");
  std::vector<std::string> titles;
  for (const Json& figure : figures) titles.push_back(figure.at("title"));
  const std::string memory = "Memory of rank 0 over one step",
                    tracks = "What the ranks did in step ";
  CHECK(titles == std::vector<std::string>{tracks + "3", memory, tracks + "4", memory, tracks + "5",
                                           memory, "Loss over steps"});
  CHECK(figures[2].at("choice") == "step 4");
  CHECK(figures[2].at("drawing").at("ranks")[2].at("name") == "rank 2");
  const std::string drawn = figures[2].at("drawing").dump() + figures[3].at("drawing").dump();
  for (const char* part : {"activations", "optimizer state", "wait", "linear backward", "bucket 0"})
    CHECK_MESSAGE(contains(drawn, part), part);
}

TEST_CASE("an emulated link slows a run down, and is refused where it is impossible") {
  const auto outcome = run_program(
      {ringside_binary, "bench", "all_reduce", "-n", "2", "--bytes", "1MB", "--backends",
       "shm,threads", "--link", "500Mbps,1ms", "--repeat", "2", "--json", "/dev/stdout"},
      {}, Seconds(60));
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.err);
  CHECK(contains(outcome.err, "every rank behind a link of 500 Mbps, 1 ms"));
  const Json rows = Json::parse(outcome.out);
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

// A rank of three in a step of 100 ms: forward and backward, with a long and a short op in each
// millisecond, and then an all-reduce round the ring in four steps.
RankTrace step_of_rank(int rank) {
  using Kind = Trace::Kind;
  RankTrace trace;
  trace.rank = rank;
  const auto add = [&](Kind kind, const char* name, double begin, double end) {
    const bool call = kind == Kind::call;
    trace.spans.push_back({call ? Trace::Track::communication : Trace::Track::compute, kind, name,
                           "", begin, end, call ? begin : -1});
  };
  add(Kind::phase, "step 5", 0, 0.1);
  add(Kind::phase, "forward", 0, 0.04);
  add(Kind::phase, "backward", 0.04, 0.08);
  for (int ms = 0; ms < 80; ++ms) {
    add(Kind::op, "linear", 1e-3 * ms, 1e-3 * ms + 0.5e-3);
    add(Kind::op, "add", 1e-3 * ms + 0.6e-3, 1e-3 * ms + 0.65e-3);
  }
  add(Kind::call, "all_reduce", 0.08, 0.096);
  for (int step = 0; step < 4; ++step) {
    const double begin = 0.08 + 0.004 * step;
    trace.messages.push_back({true, (rank + 1) % 3, step, 0, 10000, begin});
    trace.messages.push_back({false, (rank + 2) % 3, step, 0, 0, begin + 0.003});
  }
  sort_spans(trace);
  return trace;
}

// A reader presses arrow keys, zooms, looks at the arrows of a call, and goes to another step.
TEST_CASE("in a browser the report zooms into ops and into the steps of a call") {
  if (testing::browser().empty()) {
    MESSAGE(testing::no_browser);
    return;
  }
  const std::vector<RankTrace> ranks{step_of_rank(0), step_of_rank(1), step_of_rank(2)};
  Report report{"A report", {}, {}};
  for (const std::string step : {"step 3", "step 5"}) {
    report.figures.push_back(tracks_figure("What the ranks did in " + step, ranks, {0, 0.1}, 0));
    report.figures.back().choice = step;
  }
  const auto seen = testing::open_in_browser(html(report), R"(
    const shownFigure = () => [...document.querySelectorAll('figure')]
      .find(figure => !figure.hidden && figure.querySelector('.lanes'));
    const press = key => {
      const event = new KeyboardEvent('keydown', { key: key, bubbles: true, cancelable: true });
      document.activeElement.dispatchEvent(event);
      return document.activeElement.getAttribute('aria-label') + ' / ' +
          shownFigure().querySelector('.says').textContent;
    };
    const note = (name, value) => { document.body.dataset[name] = value; };
    const count = marks => shownFigure().querySelectorAll(marks).length;
    note('first', shownFigure().querySelector('h2').textContent);
    shownFigure().querySelector('.lane [tabindex="0"]').focus();
    note('right', press('ArrowRight'));
    note('left', press('ArrowLeft'));
    const keys = () => [...shownFigure().querySelectorAll('.details .forward')]
      .map(op => op.dataset.key);
    const before = keys();
    for (let i = 0; i < 5; ++i) press('+');
    note('zoomed', shownFigure().querySelector('.lanes').style.getPropertyValue('--zoom'));
    note('more', keys().some(key => !before.includes(key)));
    note('op', shownFigure().querySelector('.details .forward').getAttribute('aria-label'));
    press('0');
    note('whole', shownFigure().querySelector('.lanes').style.getPropertyValue('--zoom'));
    const call = shownFigure().querySelector('.lane > .call');
    call.focus();
    note('arrows', count('.arrows [data-call="0"]'));
    press('Enter');
    note('last', count('[data-key="step-0-3"]'));
    note('step', shownFigure().querySelector('[data-key="step-1-0"]').getAttribute('aria-label'));
    document.querySelector('.choice button').click();
    note('other', shownFigure().querySelector('h2').textContent);
  )");
  CHECK_MESSAGE(seen.exit_code == 0, seen.err);
  CHECK_MESSAGE(!contains(seen.err, "CONSOLE"), seen.err);
  const auto noted = [&](const std::string& key) -> std::string {
    const std::string before = "data-" + key + "=\"";
    const auto begin = seen.out.find(before);
    if (begin == std::string::npos) return "nothing";
    return seen.out.substr(begin + before.size(),
                           seen.out.find('"', begin + before.size()) - begin - before.size());
  };
  CHECK(noted("first") == "What the ranks did in step 5");
  CHECK_MESSAGE(noted("right").starts_with("Rank 0: backward"), noted("right"));
  CHECK_MESSAGE(contains(noted("right"), "/ Rank 0: backward"), noted("right"));  // the line below
  CHECK_MESSAGE(noted("left").starts_with("Rank 0: forward"), noted("left"));
  CHECK(noted("zoomed") == "32");
  CHECK(noted("more") == "true");
  CHECK_MESSAGE(contains(noted("op"), " ms, from "), noted("op"));
  CHECK(noted("whole") == "1");
  // The gradients are one call here: three ranks take four steps each.
  CHECK(noted("arrows") == "12");
  CHECK(noted("last") == "1");
  CHECK_MESSAGE(noted("step").starts_with("Rank 1: step 0 of the call, 0.0"), noted("step"));
  CHECK_MESSAGE(contains(noted("step"), " MB from rank 0, sent at "), noted("step"));
  CHECK(noted("other") == "What the ranks did in step 3");
}

}  // namespace ringside::cli
