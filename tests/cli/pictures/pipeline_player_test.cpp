// The pipeline schedules on the page of `ringside step --html`: the data against the schedules and
// their times, and the page in a browser.
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/read_file.hpp"
#include "cli/pictures/player/player_data.hpp"
#include "cli/pictures/player/player_page.hpp"
#include "parallel/pipeline/csv.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "parallel/pipeline/lower.hpp"
#include "parallel/pipeline/proof/verify.hpp"
#include "tests/cli/browser.hpp"
#include "tests/cli/pictures/report/markup.hpp"

namespace ringside::cli {
namespace {

using namespace pipeline_parallel;
using testing::contains;
using testing::Outcome;
using testing::ringside_binary;
using testing::run_program;
using tests::what_is_malformed;

// The page of `ringside step pipeline ...`, as the program writes it.
std::string page_of(const std::vector<std::string>& arguments) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() / "page.html";
  std::vector<std::string> command{ringside_binary, "step", "pipeline", "--html", file};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const Outcome outcome = run_program(command);
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.err);
  return read_file(file);
}

const Json& algorithm_in(const Json& data, const std::string& name) {
  for (const Json& algorithm : data.at("families").back().at("algorithms"))
    if (algorithm.at("name") == name) return algorithm;
  FAIL("the page lacks ", name);
  return data;
}

// What the page must say of a schedule, by its actions and times.
void check_play(const Json& play, const Schedule& schedule, const Durations& durations) {
  const Schedule lowered = lower(schedule);
  const Timing timing = time_of(lowered, durations);
  std::multiset<std::string> sends;  // "0 1 F3 2.5": from rank 0 to rank 1, arrives at 2.5
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    Json boxes = Json::array();
    const std::vector<int> stages = stages_of(schedule, rank);
    for (std::size_t i = 0; i < lowered.actions[rank].size(); ++i) {
      const Action& action = lowered.actions[rank][i];
      const auto [start, end] = timing.spans[rank][i];
      const auto nth = std::ranges::find(stages, action.stage) - stages.begin();
      if (is_computation(action.kind)) boxes.push_back({text_of(action), start, end, nth % 2 == 1});
      if (is_send(action.kind))
        sends.insert(fmt::format("{} {} {}{} {}", rank, lowered.rank_of[other_stage(action)],
                                 action.kind == Kind::send_activation ? "F" : "B",
                                 action.micro_batch, end));
    }
    CHECK(play.at("boxes")[rank] == boxes);
  }
  std::multiset<std::string> shown;
  for (const Json& message : play.at("messages"))
    shown.insert(fmt::format("{} {} {} {}", message.at("from").get<int>(),
                             message.at("to").get<int>(), message.at("label").get<std::string>(),
                             message.at("arrives").get<double>()));
  CHECK(shown == sends);
  CHECK(play.at("bubble") == timing.bubble());
}

}  // namespace

TEST_CASE("the page has every pipeline schedule, with the times and messages that are proved") {
  const Json data = data_of_player_page(page_of({"zb_v", "-n", "3", "--micro-batches", "5"}));
  CHECK(data.at("first") ==
        Json{{"family", "pipeline"}, {"algorithm", "zb_v"}, {"ranks", 3}, {"micro_batches", 5}});
  check_play(algorithm_in(data, "zb_v").at("plays").at("3").at("5"), make_schedule("zb_v", 3, 5),
             {});
  for (const Generator& generator : all_generators())
    for (const int ranks : {2, 3, 4, 8}) {
      const Json& plays =
          algorithm_in(data, std::string(generator.name)).at("plays").at(std::to_string(ranks));
      CHECK(plays.size() >= 2);
      for (const auto& [micro_batches, play] : plays.items()) {
        CAPTURE(generator.name);
        CAPTURE(ranks);
        CAPTURE(micro_batches);
        check_play(play, make_schedule(generator, ranks, std::stoi(micro_batches)), {});
      }
    }
}

TEST_CASE("durations, stages per rank and a schedule of one's own reach the page") {
  const Durations durations{.forward = 1, .backward = 3, .weight = 1, .message = 0.5};
  const Json data = data_of_player_page(
      page_of({"interleaved", "-n", "2", "--micro-batches", "4", "--stages-per-rank", "3",
               "--backward", "3", "--message", "0.5"}));
  check_play(algorithm_in(data, "interleaved").at("plays").at("2").at("4"),
             make_schedule("interleaved", 2, 4, 3), durations);
  check_play(algorithm_in(data, "gpipe").at("plays").at("4").at("8"), make_schedule("gpipe", 4, 8),
             durations);

  const TemporaryDirectory directory;
  const Schedule own = make_schedule("1f1b", 3, 7);
  const std::string name = "csv:" + directory.write("</script>.csv", csv_of(own)).string();
  const std::string page = page_of({name});
  CHECK(what_is_malformed(page) == "");
  const Json with_own = data_of_player_page(page);
  CHECK(with_own.at("first").at("algorithm") == name);
  check_play(algorithm_in(with_own, name).at("plays").at("3").at("7"), own, {});
}

TEST_CASE("the page of a collective has the pipelines too, and refuses what it cannot show") {
  const Json data = player_data(
      PlayerChoice{collectives::find_algorithm(collectives::Collective::barrier), 2, 0});
  CHECK(data.at("first").at("family") == "barrier");
  check_play(algorithm_in(data, "1f1b").at("plays").at("4").at("8"), make_schedule("1f1b", 4, 8),
             {});
  const auto error_of = [](const std::string& option, const std::string& number) {
    return run_program({ringside_binary, "step", "pipeline", "gpipe", option, number, "--html",
                        "/tmp/ringside_never_written.html"})
        .err;
  };
  CHECK(contains(error_of("-n", "17"),
                 "the page plays 1 to 16 ranks, but was asked for 17: choose fewer with -n"));
  CHECK(contains(error_of("--micro-batches", "65"),
                 "the page plays up to 64 micro-batches, but was asked for 65: choose fewer with "
                 "--micro-batches"));
}

// The page finds the steps of a play itself. Of each schedule: when the last ends, the most
// activations that each rank holds, and those at the end; how many messages the steps have.
TEST_CASE("in a browser the steps hold as many activations as the schedule says") {
  if (testing::browser().empty()) {
    MESSAGE(testing::no_browser);
    return;
  }
  const Outcome seen =
      testing::open_in_browser(page_of({"1f1b", "-n", "4", "--message", "0.5"}), R"(
    const result = document.createElement('pre');
    result.id = 'result';
    const pipelines = data.families[data.families.length - 1];
    result.textContent = pipelines.algorithms.map(({ name, plays }) => {
      const steps = stepsOf(plays[4][8]), ends = steps.map(({ until }) => until);
      const most = steps[0].held.map((_, rank) => Math.max(...steps.map(({ held }) => held[rank])));
      const sent = steps.reduce((sum, { messages }) => sum + messages.length, 0);
      return `${name} ${Math.max(...ends)} ${most} ${steps[steps.length - 1].held} ${sent}\n`;
    }).join('');
    document.body.append(result);
  )");
  const Durations durations{.message = 0.5};
  for (const Generator& generator : all_generators()) {
    const Schedule schedule = make_schedule(generator, 4, 8), lowered = lower(schedule);
    int sends = 0;
    for (const std::vector<Action>& actions : lowered.actions)
      sends += static_cast<int>(std::ranges::count_if(
          actions, [](const Action& action) { return is_send(action.kind); }));
    const std::string expected =
        fmt::format("{} {} {} 0,0,0,0 {}\n", generator.name, time_of(lowered, durations).step,
                    fmt::join(most_in_flight(schedule), ","), sends);
    CHECK_MESSAGE(contains(seen.out, expected), expected, "\nis not in\n",
                  seen.out.substr(seen.out.find("<pre id=\"result\">")));
  }
}

// Drives the page by its keys, and writes what it shows into a <pre>.
TEST_CASE("in a browser a pipeline plays, by the same keys as the collectives") {
  if (testing::browser().empty()) {
    MESSAGE(testing::no_browser);
    return;
  }
  const Outcome seen = testing::open_in_browser(page_of({"1f1b", "-n", "4"}), R"(
    const press = key => dispatchEvent(new KeyboardEvent('keydown', { key, cancelable: true }));
    const lines = [];
    const boxes = state => [...document.querySelectorAll(`#timeline .${state}`)]
      .map(box => box.dataset.action).join(' ');
    const note = () => lines.push([byId('title').textContent, byId('says').textContent,
      boxes('done'), document.querySelectorAll('#ring .arrow').length,
      document.querySelectorAll('#timeline .to-come').length, location.hash].join(' | '));
    note();
    press('ArrowRight'); note();
    press('ArrowRight'); note();
    press('End'); note();
    press('ArrowDown'); note();
    press('m'); note();
    press('a'); note();
    lines.push(`table: ${byId('cells').style.display}, costs: ${byId('costs').hidden}`);
    press('c'); note();
    lines.push(`timeline: ${byId('timeline').style.display}, costs: ${byId('costs').hidden}`);
    location.hash = '#pipeline/zb_v/2/4/3';
    setTimeout(() => { note(); press(' '); }, 100);
    setTimeout(() => {
      lines.push('playing: ' + (shown.position > 3));
      const result = document.createElement('pre');
      result.id = 'result';
      result.textContent = lines.join('\n');
      document.body.append(result);
    }, 6000);
  )");
  CHECK_MESSAGE(!contains(seen.err, "CONSOLE"), seen.err);
  const std::size_t begin = seen.out.find("<pre id=\"result\">");
  REQUIRE_MESSAGE(begin != std::string::npos, seen.err);
  const std::string result = seen.out.substr(begin);
  CAPTURE(result);
  CHECK(contains(result,
                 "1f1b pipeline on 4 ranks, 8 micro-batches | At the start (31 steps) |  | 0 | 64 "
                 "| #pipeline/1f1b/4/8/0\n"));
  CHECK(contains(result, " | Step 0: rank 0 F0 (1 of 31) | 0F0 | 1 | 63 | #pipeline/1f1b/4/8/1\n"));
  CHECK(contains(result, " | Step 1: rank 0 F1, rank 1 F0 (2 of 31) | 0F0 0F1 1F0 | 2 | 61 |"));
  CHECK(contains(result, " | 0 | 0 | #pipeline/1f1b/4/8/31\n"));
  CHECK(contains(result, "1f1b pipeline on 3 ranks, 8 micro-batches | At the start"));
  CHECK(contains(result, "1f1b pipeline on 3 ranks, 16 micro-batches | At the start"));
  CHECK(contains(result, "interleaved pipeline on 3 ranks, "));
  CHECK(contains(result, "table: none, costs: true"));
  CHECK(contains(result, "ring all_reduce on 3 ranks | At the start (4 steps)"));
  CHECK(contains(result, "timeline: none, costs: false"));
  CHECK(contains(result, "zb_v pipeline on 2 ranks, 4 micro-batches | Step 2: "));
  CHECK(contains(result, "playing: true"));
}

}  // namespace ringside::cli
