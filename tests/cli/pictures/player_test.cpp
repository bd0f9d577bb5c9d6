// The page of `ringside step --html`: its data against the schedules and the cost model, and the
// page itself in a browser where there is one.

#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/read_file.hpp"
#include "cli/pictures/player/cost_lines.hpp"
#include "cli/pictures/player/player_data.hpp"
#include "cli/pictures/player/player_page.hpp"
#include "collectives/selection/cost_model.hpp"
#include "tests/cli/browser.hpp"
#include "tests/cli/pictures/report/markup.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/sample.hpp"

namespace ringside::cli {
namespace {

using namespace collectives;
using testing::contains;
using testing::ringside_binary;
using testing::run_program;

// A page in a file, removed at the end of the test.
struct TemporaryPage {
  std::string path = fmt::format("/tmp/ringside_player_test_{}.html", getpid());
  ~TemporaryPage() { std::remove(path.c_str()); }
  std::string text() const { return read_file(path); }
};

// The page of `ringside step COLLECTIVE -n RANKS`, as the program writes it.
std::string page_of(const std::vector<std::string>& arguments) {
  const TemporaryPage page;
  std::vector<std::string> command{ringside_binary, "step", "--html", page.path};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const auto outcome = run_program(command);
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.err);
  return page.text();
}

const Json& algorithm_in(const Json& data, const Algorithm& algorithm) {
  for (const Json& family : data["families"]) {
    if (family["name"] != name_of(algorithm.collective)) continue;
    for (const Json& entry : family["algorithms"])
      if (entry["name"] == algorithm.name) return entry;
  }
  FAIL("the page lacks ", algorithm.title());
  return data;
}

using Held = std::vector<std::vector<std::multiset<std::string>>>;  // [rank][column]

// "0+3" as {"0", "3"}.
Held held_in(const Json& rows) {
  Held held;
  for (const Json& row : rows) {
    held.emplace_back();
    for (const Json& cell : row) {
      std::istringstream text(cell.get<std::string>());
      held.back().emplace_back();
      for (std::string part; std::getline(text, part, '+');) held.back().back().insert(part);
    }
  }
  return held;
}

// Replays the messages of a play, by the rules of schedule.hpp and without the code that made it.
// Returns the first cell that differs from what the page says, or "".
std::string what_is_wrong(const Json& play, bool barrier) {
  const Held start = held_in(play["start"]);
  Held now = start;
  for (std::size_t s = 0; s < play["steps"].size(); ++s) {
    const Json& step = play["steps"][s];
    const Held before = now;
    for (const Json& message : step["messages"]) {
      const std::size_t from = message["from"], to = message["to"];
      const std::size_t count = barrier ? 1 : message["chunks"].size();
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t source = barrier ? 0 : message["taken"][i].get<std::size_t>();
        const std::size_t target = barrier ? 0 : message["chunks"][i].get<std::size_t>();
        const auto& sent = message["input"] ? start[from][source] : before[from][source];
        auto& held = now[to][target];
        if (barrier) {
          for (const std::string& rank : sent)
            if (held.count(rank) == 0) held.insert(rank);
        } else if (message["action"] == "add") {
          held.insert(sent.begin(), sent.end());
        } else {
          held = sent;
        }
      }
    }
    const Held said = held_in(step["cells"]);
    for (std::size_t rank = 0; rank < now.size(); ++rank)
      for (std::size_t column = 0; column < now[rank].size(); ++column)
        if (now[rank][column] != said[rank][column])
          return fmt::format("step {}, rank {}, column {}", s, rank, column);
  }
  return "";
}

}  // namespace

TEST_CASE("the page of step has every algorithm, and its messages are those of the schedules") {
  const Json data = data_of_player_page(page_of({"reduce", "-n", "9", "--root", "5"}));
  CHECK(data["first"] == Json{{"family", "reduce"}, {"algorithm", "binomial"}, {"ranks", 9}});
  testing::Sample sample;
  for (const Algorithm& algorithm : all_algorithms())
    for (const int ranks : {2, 3, 4, 5, 6, 7, 8, 9}) {
      if (!sample.takes()) continue;
      CAPTURE(algorithm.title());
      CAPTURE(ranks);
      const Json& play = algorithm_in(data, algorithm)["plays"][std::to_string(ranks)];
      const int root = has_root(algorithm.collective) ? std::min(5, ranks - 1) : 0;
      CHECK(play["root"] == (has_root(algorithm.collective) ? Json(root) : Json()));
      const auto schedules = make_schedules(algorithm, ranks, root);
      REQUIRE(play["steps"].size() == schedules[0].steps.size());
      for (std::size_t s = 0; s < schedules[0].steps.size(); ++s) {
        std::size_t sends = 0;
        for (const Schedule& schedule : schedules) sends += schedule.steps[s].send.has_value();
        REQUIRE(play["steps"][s]["messages"].size() == sends);
        for (const Json& message : play["steps"][s]["messages"]) {
          const Send& send = *schedules[message["from"].get<int>()].steps[s].send;
          const Receive& receive = *schedules[message["to"].get<int>()].steps[s].receive;
          CHECK(send.to == message["to"]);
          CHECK(send.input.has_value() == message["input"]);
          CHECK(receive.from == message["from"]);
          std::vector<int> taken, chunks;
          for (int i = 0; i < receive.chunks.count; ++i) {
            taken.push_back(send.taken().at(i));
            chunks.push_back(receive.chunks.at(i));
          }
          CHECK(message["taken"] == Json(taken));
          CHECK(message["chunks"] == Json(chunks));
          CHECK((receive.action == Action::add) == (message["action"] == "add"));
        }
      }
      CHECK(what_is_wrong(play, algorithm.collective == Collective::barrier) == "");
    }
}

TEST_CASE("at the end of every all-reduce of the page each cell holds every rank once") {
  const Json data = data_of_player_page(page_of({}));
  for (const Json& algorithm : data["families"][0]["algorithms"])
    for (const auto& [ranks, play] : algorithm["plays"].items()) {
      std::multiset<std::string> all;
      for (int rank = 0; rank < std::stoi(ranks); ++rank) all.insert(std::to_string(rank));
      for (const auto& row : held_in(play["steps"].back()["cells"]))
        for (const auto& cell : row) CHECK(cell == all);
    }
}

TEST_CASE("the costs of the page are those of the cost model, for any alpha and beta") {
  const Json data = data_of_player_page(page_of({"-n", "16"}));
  const std::uint64_t slice = data["slice_bytes"];
  const std::vector<std::uint64_t> sizes = data["sizes"];
  double worst = 0;
  testing::Sample sample;
  for (const Algorithm& algorithm : all_algorithms())
    for (const int ranks : {2, 3, 5, 8, 16}) {
      if (!sample.takes()) continue;
      const Json& costs = algorithm_in(data, algorithm)["costs"][std::to_string(ranks)];
      REQUIRE(costs.size() == sizes.size());
      for (std::size_t i = 0; i < sizes.size(); i += 3)
        for (const double alpha : {1e-7, 3e-6, 1e-5, 1e-3})
          for (const double beta : {1e-11, 2e-10, 1e-9, 1e-7}) {
            double longest = 0;
            for (const Json& line : costs[i])
              longest =
                  std::max(longest, line[0].get<double>() * alpha + line[1].get<double>() * beta);
            const double expected =
                cost_of(algorithm, ranks, sizes[i],
                        {.alpha = alpha, .beta = beta, .overhead = alpha / 2, .slice_bytes = slice})
                    .seconds;
            worst = std::max(worst, std::abs(longest - expected) / expected);
          }
    }
  CHECK(worst < 1e-6);
}

TEST_CASE("the lines of the ring and of recursive doubling are the formulas of the literature") {
  for (const int p : {2, 4, 8}) {
    const auto lines_of = [&](const char* name) {
      const auto schedules = make_schedules(find_algorithm(Collective::all_reduce, name), p);
      return cost_lines(schedules, Chunks::even(8000, schedules[0].chunks), 0);
    };
    const auto ring = lines_of("ring"), doubling = lines_of("recursive_doubling");
    const int log = p == 2 ? 1 : p == 4 ? 2 : 3;
    REQUIRE(ring.size() == 1);
    CHECK(ring[0].messages == 2 * (p - 1));
    CHECK(ring[0].bytes == 2 * (p - 1) * (8000 / p));
    REQUIRE(doubling.size() == 1);
    CHECK(doubling[0].messages == log);
    CHECK(doubling[0].bytes == log * 8000);
  }
}

TEST_CASE("the page is well-formed, loads nothing, and keeps all ranks below 17") {
  const std::string page = page_of({"barrier", "-n", "1"});
  CHECK(tests::what_is_malformed(page) == "");
  CHECK_FALSE(contains(page, "http"));
  for (const char* loads : {"src=", "href=", "@import", "url(h", "fetch(", "XMLHttpRequest"})
    CHECK_FALSE(contains(page, loads));
  const auto outcome = run_program({ringside_binary, "step", "-n", "17", "--html", "/tmp/x.html"});
  CHECK(outcome.exit_code != 0);
  CHECK(contains(outcome.err, "--html plays up to 16 ranks, not 17: choose fewer with -n"));
}

// Drives the page as a reader does, by keys and sliders, and writes what it shows into a <pre>.
TEST_CASE("in a browser the page plays, and its times are those of the cost model") {
  if (testing::browser().empty()) {
    MESSAGE(testing::no_browser);
    return;
  }
  const std::string page = page_of({"all_reduce", "--algorithm", "ring", "-n", "4"});
  const auto outcome = testing::open_in_browser(page, R"(
    const press = key => dispatchEvent(new KeyboardEvent('keydown', { key, cancelable: true }));
    const lines = [];
    const held = () => [...document.querySelectorAll('[data-held]')].map(cell => cell.dataset.held);
    const note = () => lines.push(byId('title').textContent + ' | ' + byId('says').textContent +
      ' | ' + held().join(' ') + ' | ' + document.querySelectorAll('#ring .arrow').length);
    note();
    press('ArrowRight'); note();
    press('End'); note();
    press('ArrowUp'); note();
    press('a'); note();
    press('c'); press('Home'); note();
    choose('all_reduce', 'ring', 8, 0);
    byId('size').value = 0; byId('alpha').value = 60; byId('beta').value = 20;
    byId('beta').dispatchEvent(new Event('input'));
    for (const row of document.querySelectorAll('#bars tr'))
      lines.push('cost ' + row.dataset.algorithm + ' ' + row.dataset.seconds + ' ' + row.className);
    lines.push(byId('why').textContent);
    choose('all_reduce', 'ring', 8, 0);
    press(' ');
    setTimeout(() => {
      lines.push('playing: ' + (shown.position > 0));
      const result = document.createElement('pre');
      result.id = 'result';
      result.textContent = lines.join('\n');
      document.body.append(result);
    }, 5000);
  )");
  const std::size_t begin = outcome.out.find("<pre id=\"result\">");
  REQUIRE_MESSAGE(begin != std::string::npos, outcome.err);
  const std::string result = outcome.out.substr(begin);

  CHECK(contains(result,
                 "ring all_reduce on 4 ranks | At the start (6 steps) | "
                 "0 0 0 0 1 1 1 1 2 2 2 2 3 3 3 3 | 0"));
  CHECK(contains(result,
                 "ring all_reduce on 4 ranks | Step 0: what arrives is added (1 of 6) | "
                 "0 0 0+3 0 1 1 1 0+1 1+2 2 2 2 3 2+3 3 3 | 4"));
  CHECK(contains(result, "| Step 5: what arrives replaces what was there (6 of 6) | 0+1+2+3 0+1"));
  CHECK(contains(result, "ring all_reduce on 5 ranks | At the start (8 steps)"));
  CHECK(contains(result, "halving_doubling all_reduce on 5 ranks | At the start"));
  CHECK(contains(result, "ring reduce_scatter on 5 ranks | At the start (4 steps)"));
  CHECK(contains(result, "playing: true"));

  // Slider 60 is 10^(-7 + 60/20) s, and slider 20 is 10^(-11 + 20/20) s.
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective != Collective::all_reduce) continue;
    const std::string row = fmt::format("cost {} ", algorithm.name);
    const std::size_t at = result.find(row);
    REQUIRE(at != std::string::npos);
    const double seconds = std::strtod(result.c_str() + at + row.size(), nullptr);
    const double expected =
        cost_of(algorithm, 8, 1024, alpha_beta_costs(1e-4, 1e-10, 256 * 1024)).seconds;
    CHECK(std::abs(seconds - expected) < 1e-6 * expected);
  }
  CHECK(contains(result, "recursive_doubling is the fastest: "));
}

}  // namespace ringside::cli
