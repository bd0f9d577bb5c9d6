// `-n N` of a command that runs on several ranks, and its place under an outer launcher.

#include <csignal>

#include <doctest/doctest.h>

#include "tests/cli/run_program.hpp"

using namespace ringside::testing;

TEST_CASE("with -n the command starts its ranks itself") {
  const auto outcome = run_program({ringside_binary, "hello", "-n", "3"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  CHECK(outcome.out.starts_with("3 ranks over shm."));  // rank 0 speaks, without a prefix
  CHECK(outcome.survivors == "");
}

TEST_CASE("one rank is this very process") {
  const auto outcome = run_program({ringside_binary, "hello", "-n", "1"});
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "1 rank"));
}

TEST_CASE("under an outer launcher the command takes its place from the environment") {
  for (const std::vector<std::string>& own : {std::vector<std::string>{}, {"-n", "2"}}) {
    std::vector<std::string> command{ringside_binary, "launch", "-n", "2", "--", ringside_binary, "hello"};
    command.insert(command.end(), own.begin(), own.end());
    const auto outcome = run_program(command);
    CHECK(outcome.exit_code == 0);
    CHECK(outcome.err == "");
    CHECK(contains(outcome.out, "[0] 2 ranks over shm."));
    CHECK_FALSE(contains(outcome.out, "[0] [0]"));
  }
}

TEST_CASE("a number of ranks that the outer launcher does not know is refused") {
  auto outcome = run_program({ringside_binary, "hello", "-n", "4"}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.err ==
        "ringside: -n asks for 4 ranks, but the environment says that this process is one of 2: leave out -n, or unset RANK and "
        "WORLD_SIZE\n"
        "Try: ringside hello --help\n");
  outcome = run_program({ringside_binary, "hello", "-n", "4"}, {{"RANK", "0"}});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.err == "ringside: RANK is set but WORLD_SIZE is not: a launcher sets both; unset RANK to start ranks from here\n");
}

TEST_CASE("an interrupted training leaves no process") {
  for (const int signal : {SIGINT, SIGKILL}) {
    CAPTURE(signal);
    Program program({ringside_binary, "train", "-n", "3", "--steps", "100000", "--sequence", "32", "--threads", "1"});
    REQUIRE(program.wait_for("bits"));
    program.send(signal);
    const auto outcome = program.wait();
    CHECK((signal == SIGINT ? outcome.exit_code : outcome.signal) == (signal == SIGINT ? 128 + SIGINT : SIGKILL));
    CHECK(outcome.survivors == "");
    CHECK_FALSE(outcome.timed_out);
  }
}
