// run_ranks(), the main function of a program of several ranks, and RankPrinter, by a program that
// is started as a user starts it.
#include <regex>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/cli/run_program.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

const std::string printing_worker = PRINTING_WORKER;

Outcome launch(const std::vector<std::string>& arguments, const Variables& variables = {}) {
  std::vector<std::string> command{ringside_binary, "launch", "--bare", "-n", "3", "--",
                                   printing_worker};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_program(command, variables);
}

const std::string in_order =
    "rank 0\nrank 1!\nrank 2!!\nonly rank 1 has more to say,\nin two lines\n";

}  // namespace

TEST_CASE("processes and threads print in the order of ranks, whoever comes first") {
  for (const Outcome& outcome : {launch({}), run_program({printing_worker, "--threads", "3"})}) {
    CHECK(outcome.out == in_order);
    CHECK(outcome.err == "");
    CHECK(outcome.exit_code == 0);
  }
  CHECK(contains(run_program({printing_worker, "--threads"}).out,
                 "rank 3!!!\n"));  // four without a number
}

TEST_CASE("as it comes, each rank prints its own lines at once") {
  // Rank 1 says its second line before rank 0 has come to its first.
  const std::string by_time =
      "rank 2!!\nrank 1!\nonly rank 1 has more to say,\nin two lines\nrank 0\n";
  CHECK(run_program({printing_worker, "--threads", "3", "--as-it-comes"}).out == by_time);
  const Outcome processes = launch({"--as-it-comes"});
  CHECK(contains(processes.out, "[2] rank 2!!\n[1] rank 1!\n[1] only rank 1 has more to say,\n"));
  CHECK(contains(processes.out, "\nrank 0\n"));
}

TEST_CASE("a rank that fails ends the others, and its cause is printed") {
  const Outcome threads = run_program({printing_worker, "--threads", "3"}, {{"FAILS", "1"}});
  CHECK(threads.exit_code == 1);
  CHECK(threads.err == fmt::format("{}: rank 1 has no data\n", printing_worker));
  const Outcome processes = launch({}, {{"FAILS", "1"}});
  CHECK(processes.exit_code == 1);
  CAPTURE(processes.err);
  CHECK(contains(processes.err, fmt::format("[1] {}: rank 1 has no data\n", printing_worker)));
  // "rank 1 gave up: ...", or "... (as rank 1 tells)", as the news came. Its line may be the first.
  CHECK(std::regex_search(processes.err, std::regex("(^|\n)\\[2\\] .*: rank 1 .*has no data")));
}

TEST_CASE("other arguments are refused with those that there are, and one rank is told of more") {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--treads"}, {"4"}, {"--threads", "0"}, {"--threads", "-1"}}) {
    std::vector<std::string> command{printing_worker};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const Outcome outcome = run_program(command);
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.out == "");
    CHECK(outcome.err ==
          fmt::format("{0}: does not know '{1}'. Four ranks, as processes and as threads:\n"
                      "  ringside launch -n 4 -- {0}\n"
                      "  {0} --threads 4\n"
                      "With --as-it-comes each rank prints when it comes to a line.\n",
                      printing_worker, arguments.back()));
  }
  const Outcome one = run_program({printing_worker});
  CHECK(one.exit_code == 0);
  CHECK(one.out == "rank 0\n");
  CHECK(one.err ==
        fmt::format("This was one rank. Four: `ringside launch -n 4 -- {0}`, `{0} --threads`\n",
                    printing_worker));
}
