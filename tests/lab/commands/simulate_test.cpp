// `ringside simulate` as a user sees it.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "tests/cli/pictures/report/markup.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside::testing;
using ringside::Json;

namespace {

Outcome simulate(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {ringside_binary, "simulate"});
  return run_program(arguments);
}

}  // namespace

TEST_CASE("an all-reduce on 1024 ranks: table, JSON and page have the same figures") {
  const TemporaryDirectory directory;
  const std::string page = (directory.path() / "curves.html").string(),
                    figures = (directory.path() / "figures.json").string();
  const Outcome outcome = simulate({"all_reduce", "-n", "8,1024", "--bytes", "1KB,1MB,1GB",
                                    "--topology", "h100", "--json", figures, "--html", page});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  CHECK(contains(outcome.out, "all_reduce on 8 ranks of h100, over NVLink; times from the walked"));
  CHECK(contains(outcome.out, "all_reduce on 1024 ranks of h100, over InfiniBand"));
  for (const std::string& line : sorted_lines(outcome.out)) {
    CAPTURE(line);
    CHECK((line.size() <= 80 || contains(line, "report: ")));
  }
  const auto json = Json::parse(read_file(figures));
  REQUIRE(json.size() == (3 + 4) * 3);  // between servers there is the double tree, too
  // 2 (n - 1) messages of D/n bytes over 8 cards of 45 GB/s; of 8 hops, 7 of 3 us stay in a server.
  const auto& ring = json.at(9 + 8);
  CHECK(ring.at("algorithm") == "ring");
  CHECK(ring.at("bytes") == 1'000'000'000);
  CHECK(ring.at("time_us").get<double>() ==
        doctest::Approx(2 * 1023 * (6 + 7 * 3) / 8.0 + 2 * 1023.0 / 1024 * 1e9 / 360e9 * 1e6)
            .epsilon(1e-9));
  CHECK(ringside::tests::what_is_malformed(read_file(page)) == "");
  CHECK(contains(read_file(page), "<h2>Time, 1024 ranks over InfiniBand</h2>"));
}

TEST_CASE("a step of a plan: table, JSON, drawing, trace and page have the same figures") {
  const TemporaryDirectory directory;
  const auto file = [&](const char* name) { return (directory.path() / name).string(); };
  const Outcome outcome = simulate(
      {"--model", "llama3-8b", "--mesh", "pp=4,dp=2,tp=8", "--schedule", "1f1b", "--micro-batches",
       "8", "--topology", "h100", "--json", file("figures.json"), "--svg", file("lanes.svg"),
       "--trace", file("trace.json"), "--html", file("page.html")});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  CHECK(contains(outcome.out, "64; one data-parallel replica simulated, the others do the same"));
  for (const std::string& line : sorted_lines(outcome.out)) {
    CAPTURE(line);
    CHECK((line.size() <= 80 || contains(line, directory.path().string())));
  }
  const auto json = Json::parse(read_file(file("figures.json")));
  const double step = json.at("step_seconds");
  CHECK(json.at("pipeline_ranks").size() == 4);
  for (const auto& rank : json.at("pipeline_ranks"))
    CHECK(rank.at("computing_seconds").get<double>() + rank.at("idle_seconds").get<double>() +
              rank.at("reducing_seconds").get<double>() +
              json.at("optimizer_seconds").get<double>() ==
          doctest::Approx(step).epsilon(1e-9));
  CHECK(json.at("exposed").size() == 3);
  // A stage in the middle sends an activation and a gradient of each of 8 micro-batches: 8192
  // tokens of width 4096 in 16 bits.
  const auto& links = json.at("links");
  const auto pp = std::find_if(links.begin(), links.end(),
                               [](const auto& link) { return link.at("axis") == "pp"; });
  REQUIRE(pp != links.end());
  CHECK(pp->at("sent_bytes") == 2 * 8 * 8192.0 * 4096 * 2);

  const auto trace = Json::parse(read_file(file("trace.json"))).at("traceEvents");
  double longest = 0, forwards = 0;
  for (const auto& event : trace) {
    if (event.at("ph") != "X") continue;
    longest = std::max(longest, event.at("ts").get<double>() + event.at("dur").get<double>());
    forwards += event.at("name") == "forward";
  }
  CHECK(longest * 1e-6 == doctest::Approx(step).epsilon(1e-9));
  CHECK(forwards == 4 * 8);
  CHECK(ringside::tests::what_is_malformed(read_file(file("lanes.svg"))) == "");
  CHECK(ringside::tests::what_is_malformed(read_file(file("page.html"))) == "");
  for (const char* title : {"What the ranks do in a step", "Load of the links"})
    CHECK(contains(read_file(file("page.html")), fmt::format("<h2>{}</h2>", title)));
}

TEST_CASE("stragglers: the step without them stands beside it") {
  const Outcome outcome = simulate({"--model", "llama3-8b", "--mesh", "dp=4,tp=8", "--slow",
                                    "9=1.5,10=1.2", "--jitter", "0.1", "--seed", "7"});
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "all 32 simulated"));
  CHECK(contains(outcome.out, "without slow ranks: "));
}

TEST_CASE("predicted stands beside measured, from a trace of train") {
  const TemporaryDirectory directory;
  const std::string trace = (directory.path() / "step.json").string();
  const Outcome run =
      run_program({ringside_binary, "train", "-n", "2", "--mesh", "pp=2", "--micro-batches", "2",
                   "--batch", "4", "--sequence", "32", "--steps", "2", "--trace", trace});
  REQUIRE(run.exit_code == 0);
  const std::vector<std::string> plan = {"--model",    "tiny", "--topology",      "laptop",
                                         "--sequence", "32",   "--micro-batches", "2",
                                         "--against",  trace,  "--json",          "-"};
  auto arguments = plan;
  arguments.insert(arguments.end(), {"--mesh", "pp=2"});
  const Outcome outcome = simulate(arguments);
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.err, "Predicted beside measured"));
  const auto against = Json::parse(outcome.out).at("against");
  for (const char* part : {"step", "forward", "backward", "update"}) {
    CAPTURE(part);
    CHECK(against.at(part).at("measured_seconds") > 0);
    CHECK(against.at(part).at("predicted_seconds") > 0);
  }
  CHECK(against.at("step").at("measured_seconds").get<double>() >
        against.at("forward").at("measured_seconds").get<double>() +
            against.at("backward").at("measured_seconds").get<double>());

  // The same steps as `ringside timeline` shows them.
  const std::string page = (directory.path() / "page.html").string();
  const Outcome timeline =
      run_program({ringside_binary, "timeline", trace, "--json", "-", "--html", page});
  CHECK(timeline.exit_code == 0);
  CHECK(contains(timeline.err, "What the ranks did in step 2\n"));
  double seen = 0;  // computing or waiting, a rank's mean
  const auto rows = Json::parse(timeline.out);
  REQUIRE(rows.size() == 4);
  for (const auto& row : rows)
    for (const char* part : {"computing_seconds", "waiting_seconds"})
      seen += row.at(part).get<double>() / 4;
  CHECK(rows[3].at("step") == "step 2");
  CHECK(rows[3].at("rank") == 1);
  CHECK(rows[3].at("calls").get<int>() > 0);
  double phases = 0;
  for (const char* part : {"forward", "backward", "update"})
    phases += against.at(part).at("measured_seconds").get<double>();
  CHECK(seen >= 0.999 * phases);
  // Once, not twice. A rank may begin a step before the others end the one before.
  CHECK(seen <= 1.5 * against.at("step").at("measured_seconds").get<double>());
  CHECK(ringside::tests::what_is_malformed(read_file(page)) == "");
  CHECK(contains(read_file(page), "rank 1 (pp=1)"));

  arguments.back() = "dp=4";
  CHECK(contains(simulate(arguments).err,
                 "has traces of 2 ranks, but the mesh has 4: name the mesh of that run"));
  std::ofstream(trace)
      << R"({"traceEvents": [{"ph": "X", "cat": "phase", "name": "a", "ts": -1}]})";
  CHECK(contains(simulate(arguments).err,
                 "step.json: traceEvents[0].ts is -1, but a number of at least 0 is expected"));
}

TEST_CASE("a timeline has the steps of the calls in the trace") {
  const TemporaryDirectory directory;
  const std::string trace = (directory.path() / "step.json").string(),
                    page = (directory.path() / "page.html").string();
  for (const auto& command :
       std::vector<std::vector<std::string>>{{"train", "-n", "3", "--batch", "3", "--sequence",
                                              "16", "--steps", "2", "--trace", trace},
                                             {"timeline", trace, "--html", page}}) {
    std::vector<std::string> words{ringside_binary};
    words.insert(words.end(), command.begin(), command.end());
    REQUIRE(run_program(words).exit_code == 0);
  }
  // Receiver, step, sender, bytes.
  std::multiset<std::tuple<int, int, int, int>> recorded, shown;
  const auto file = Json::parse(read_file(trace));
  for (const auto& event : file.at("traceEvents")) {
    if (event.value("cat", std::string()) != "step") continue;
    const std::string name = event.at("name");
    recorded.emplace(event.at("pid"), std::stoi(name.substr(name.rfind(' ') + 1)),
                     event.at("args").at("from_rank"), event.at("args").at("bytes"));
  }
  const std::string html = read_file(page), begin = "class=\"tracks-data\">";
  int ops = 0;
  for (auto at = html.find(begin); at != std::string::npos; at = html.find(begin, at)) {
    at += begin.size();
    const auto data = Json::parse(html.substr(at, html.find("</script>", at) - at));
    for (const auto& rank : data.at("ranks")) {
      for (const auto& step : rank.at("steps")) {
        const double sent = step[2], began = step[3], arrived = step[4];
        CHECK(sent <= arrived);
        CHECK(began <= arrived);
        shown.emplace(rank.at("rank"), step[0], step[1], std::lround(step[5].get<double>() * 1e6));
      }
      for (const auto& op : rank.at("ops")) {
        ++ops;
        CHECK(!contains(op[0].get<std::string>(), " step "));  // a step of a call is no op
      }
    }
  }
  CHECK(recorded.size() > 20);
  // Where one rank begins a step before another one has ended the last, both windows show what is
  // in both.
  CHECK(std::ranges::includes(shown, recorded));
  CHECK(std::set(shown.begin(), shown.end()) == std::set(recorded.begin(), recorded.end()));
  CHECK(ops > 100);
}

TEST_CASE("the times of a trace's stages are those of the step that was traced") {
  const TemporaryDirectory directory;
  const std::string trace = (directory.path() / "step.json").string();
  // With a kernel that adds up gradients, a micro-batch takes longer where there are more of them.
  const auto step_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--model",           "llama3-8b", "--mesh",
                                       "pp=4,tp=2",         "--json",    "-",
                                       "--fused-gradients", "--topology"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = simulate(arguments);
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return Json::parse(outcome.out).at("step_seconds").get<double>();
  };
  for (const char* schedule : {"1f1b", "zb_h1"}) {
    step_of({"h100", "--micro-batches", "8", "--schedule", schedule, "--trace", trace});
    // Another schedule, network and number of micro-batches, from the same computations.
    for (const char* other : {"1f1b", "gpipe", "zb_h1"}) {
      const double formulas = step_of({"h100", "--micro-batches", "12", "--schedule", other});
      CHECK(step_of({"h100", "--micro-batches", "12", "--schedule", other, "--measured", trace}) ==
            doctest::Approx(formulas).epsilon(1e-6));
    }
    CHECK(step_of({"a100", "--micro-batches", "8", "--measured", trace}) <
          step_of({"a100", "--micro-batches", "8"}));
  }
  CHECK(contains(simulate({"--model", "llama3-8b", "--mesh", "pp=2", "--measured", trace}).err,
                 "the trace has 4 stages, but the plan has 2: name the mesh and the schedule of"));
}

TEST_CASE("a file that is no trace gets a sentence with its place") {
  const TemporaryDirectory directory;
  const std::string path = (directory.path() / "step.json").string();
  const auto error_of = [&](const char* option, const std::string& text) {
    std::ofstream(path) << text;
    const Outcome outcome = simulate({"--model", "tiny", "--topology", "laptop", option, path});
    CHECK(outcome.exit_code == 1);
    CHECK(outcome.out == "");
    return outcome.err;
  };
  const auto events = [](const std::string& list) { return "{\"traceEvents\": [" + list + "]}"; };
  const std::string forward =
      R"({"ph": "X", "cat": "phase", "name": "forward", "ts": 0, "dur": 5, "pid": 0})";
  for (const char* option : {"--measured", "--against"}) {
    CAPTURE(option);
    CHECK(contains(error_of(option, "step 1\nstep 2\n"),
                   "step.json is not JSON: the error is in line 1"));
    CHECK(contains(error_of(option, "{}"), "step.json: traceEvents is missing"));
    CHECK(contains(error_of(option, "[1]"), "step.json is [1], but an object {...} is expected"));
    CHECK(contains(error_of(option, events("7")), "step.json: traceEvents[0] is 7, but an object"));
    CHECK(
        contains(error_of(option, events(R"({"ph": "X", "cat": "phase", "name": "a", "ts": -1})")),
                 "step.json: traceEvents[0].ts is -1, but a number of at least 0 is expected"));
  }
  CHECK(contains(error_of("--measured", events(R"({"ph": "M"})")), "the trace shows no forward"));
  CHECK(
      contains(error_of("--measured", events(forward)), "the trace shows no backward of stage 0"));
  CHECK(contains(error_of("--against", events(forward)), "the trace has no whole step"));
  CHECK(
      contains(error_of("--measured",
                        events(R"({"ph": "X", "cat": "phase", "name": "forward", "ts": 0, "dur": 5,
                                     "pid": 0, "args": {"data": "1F0"}})")),
               "the trace shows stage 1 but not stage 0: it must be one of all ranks"));
  std::ofstream(path) << events(forward);
  CHECK(contains(run_program({ringside_binary, "timeline", path}).err,
                 "step.json has no training step: expected a file of `ringside train --trace`"));
  CHECK(contains(simulate({"--model", "tiny", "--measured", "none.json"}).err,
                 "cannot read none.json: No such file or directory"));
}

TEST_CASE("every collective has a table and figures of its own") {
  const TemporaryDirectory directory;
  const std::string figures = (directory.path() / "figures.json").string();
  for (const char* collective : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                 "broadcast", "reduce", "gather", "scatter"}) {
    CAPTURE(collective);
    for (const char* ranks : {"3", "16", "2048"}) {
      CAPTURE(ranks);
      const Outcome outcome = simulate({collective, "-n", ranks, "--json", figures});
      CHECK(outcome.err == "");
      CHECK(outcome.exit_code == 0);
      CHECK(contains(outcome.out, fmt::format("{} on {} ranks of h100", collective, ranks)));
      for (const auto& row : Json::parse(read_file(figures))) {
        CHECK(row["collective"] == collective);
        CHECK(row["time_us"].get<double>() > 0);
        CHECK(row["busbw_gbps"].get<double>() < 370);
      }
    }
  }
}

TEST_CASE("experts: the axis ep is in the report, and a busiest rank takes longer") {
  const auto step_of = [](const char* imbalance) {
    const Outcome outcome =
        simulate({"--model", "mixtral-8x7b", "--mesh", "pp=2,dp=2,ep=4", "--micro-batches", "4",
                  "--imbalance", imbalance, "--congestion", "--json", "-"});
    CHECK(outcome.exit_code == 0);
    CHECK(contains(outcome.err, "ep"));
    const auto json = Json::parse(outcome.out);
    int found = 0;
    for (const auto& row : json.at("exposed"))
      found += row.at("axis") == "ep" && row.at("seconds").get<double>() > 0;
    CHECK(found == 1);
    return json.at("step_seconds").get<double>();
  };
  CHECK(step_of("1.5") > 1.05 * step_of("1"));
  CHECK(contains(simulate({"--model", "mixtral-8x7b", "--mesh", "ep=4", "--imbalance", "0.5"}).err,
                 "--imbalance"));
}

TEST_CASE("what cannot be simulated gets one sentence") {
  const auto error_of = [](const std::vector<std::string>& arguments) {
    const Outcome outcome = simulate(arguments);
    CHECK(outcome.exit_code != 0);
    CHECK(outcome.out == "");
    return outcome.err;
  };
  CHECK(contains(error_of({"barrier"}),
                 "there is no simulation of 'barrier': choose one of all_reduce, all_gather, "
                 "reduce_scatter, all_to_all, broadcast, reduce, gather, scatter"));
  CHECK(contains(error_of({"all_reduce", "--algorithm", "rung"}),
                 "there is no algorithm named 'rung' for all_reduce"));
  CHECK(contains(error_of({"all_reduce", "-n", "100000"}),
                 "the plan needs 100000 devices, but h100 has 16384"));
  CHECK(contains(error_of({"all_reduce", "--bytes", "many"}), "'many' is not a number of bytes"));
  CHECK(contains(error_of({"all_reduce", "--topology", "moon"}), "there is no machine or file"));
  CHECK(contains(error_of({"all_reduce", "--algorithm", "in_network"}),
                 "the switches of NVLink on h100 do not add up: give the level an"));
  CHECK(contains(error_of({}), "what is to be simulated? Give --model and --mesh for a step, or"));
  CHECK(
      contains(error_of({"all_reduce", "--model", "lab"}), "give either a collective or --model"));
  const auto plan_error = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--model", "llama3-8b"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return error_of(arguments);
  };
  CHECK(
      contains(plan_error({"--mesh", "tp=3"}), "the 32 heads of llama3-8b do not divide by tp=3"));
  CHECK(contains(plan_error({"--mesh", "dp=20000"}), "the plan needs 20000 devices, but h100 has"));
  CHECK(contains(plan_error({"--slow", "5"}),
                 "--slow 5: a rank and a factor of at least 1 are expected, as in --slow 5=1.3"));
  CHECK(contains(plan_error({"--slow", "0=0.5"}), "a factor of at least 1"));
  CHECK(contains(plan_error({"--mesh", "dp=2", "--slow", "2=2"}),
                 "rank 2 cannot be slow: the mesh dp=2 has the ranks 0 to 1"));
  CHECK(contains(plan_error({"--mesh", "pp=2", "--schedule", "2f2b"}),
                 "there is no schedule named '2f2b'"));
  CHECK(contains(plan_error({"--mesh", "pp=2", "--schedule", "csv:none.csv"}), "none.csv"));
  CHECK(contains(error_of({"--model", "deepseek-v3", "--mesh", "dp=8"}),
                 "only the state of deepseek-v3 is known, so its step cannot be simulated"));
}
