// A rank that cannot start a thread says so, and no rank waits for it.

#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/cli/run_program.hpp"

using namespace ringside::testing;

namespace {

// A new thread asks for as much address space as `ulimit -s` says: here, for more than there is.
// (A limit of processes would do too, but not for root.)
const std::string no_threads = "ulimit -s 140000000000 || exit 77";

const std::string sentence =
    "cannot start a thread for asynchronous calls: Resource temporarily unavailable; is a limit on "
    "threads (ulimit -u) or memory (ulimit -v) reached?";

std::vector<std::string> train_with(const std::string& strategy, const std::string& backend) {
  return {ringside_binary, "train", "--parallel", strategy, "--backend",  backend, "--threads", "1",
          "--steps",       "2",     "--batch",    "3",      "--sequence", "16"};
}

// `sh -c SCRIPT sh COMMAND...`: the script ends with exec "$@".
std::vector<std::string> in_shell(const std::string& script,
                                  const std::vector<std::string>& command) {
  std::vector<std::string> whole{"sh", "-c", script + R"(; exec "$@")", "sh"};
  whole.insert(whole.end(), command.begin(), command.end());
  return whole;
}

}  // namespace

TEST_CASE("where one rank cannot start a thread every rank says why and none waits") {
  for (const char* strategy : {"overlap", "bucketed", "zero3"}) {
    for (const char* backend : {"tcp", "shm"}) {
      CAPTURE(strategy);
      CAPTURE(backend);
      std::vector<std::string> command{ringside_binary, "launch", "-n", "3", "--"};
      for (const auto& word :
           in_shell("if [ $RANK = 1 ]; then " + no_threads + "; fi", train_with(strategy, backend)))
        command.push_back(word);
      const auto outcome = run_program(command);
      CHECK(outcome.exit_code == 1);
      CHECK_FALSE(outcome.timed_out);
      CHECK(contains(outcome.err, "[1] ringside: " + sentence + "\n"));
      for (const int other : {0, 2}) {
        CHECK(contains(outcome.err, fmt::format("[{}] ringside: {} (as rank ", other, sentence)));
      }
      CHECK(outcome.survivors == "");
    }
  }
}

TEST_CASE("ranks that are threads end together where one cannot be started") {
  auto command = train_with("overlap", "threads");
  command.insert(command.end(), {"-n", "3"});
  const auto outcome = run_program(in_shell(no_threads, command));
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.err ==
        "ringside: cannot start a thread for rank 1 of 3: Resource temporarily unavailable; is a "
        "limit on threads (ulimit -u) or memory (ulimit -v) reached?\n");
}

TEST_CASE("bench: ranks that are threads end together where one cannot be started") {
  const auto outcome =
      run_program(in_shell(no_threads, {ringside_binary, "bench", "all_reduce", "-n", "3",
                                        "--bytes", "4B", "--backends", "threads"}));
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 1);
  CHECK(contains(outcome.err, "cannot start a thread for rank 1 of 3: Resource temporarily "));
  CHECK_FALSE(contains(outcome.err, "terminate"));
  CHECK_FALSE(contains(outcome.err, "SIGABRT"));
}

TEST_CASE("threads of the loops that cannot be started are a sentence, not OpenMP's end") {
  const auto outcome = run_program(in_shell(
      no_threads, {ringside_binary, "train", "--threads", "2", "--steps", "1", "--batch", "2"}));
  CHECK(outcome.exit_code == 1);
  CHECK(
      contains(outcome.err,
               "ringside: cannot start a thread for the loops of this rank: Resource temporarily "
               "unavailable; is a limit on threads (ulimit -u) or memory (ulimit -v) reached?\n"));
  CHECK_FALSE(contains(outcome.err, "libgomp"));
}
