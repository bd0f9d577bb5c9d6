// The launcher names the rank that failed first, not the rank that complains first, or that ends
// first.

#include <chrono>
#include <csignal>
#include <random>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/cli/run_program.hpp"

using namespace ringside;
using namespace ringside::testing;

TEST_CASE("a rank that is killed at any moment is named, and its signal is the exit status") {
  // While the ranks meet, in the first step, in a collective, between two of them: the moment is
  // another in every run of this test. tools/kill-check kills 54 times.
  std::mt19937 random(std::random_device{}());
  for (const char* backend : {"tcp", "shm"})
    for (int victim = 0; victim < 3; ++victim) {
      const auto moment = std::chrono::milliseconds(random() % 1000);
      CAPTURE(backend);
      CAPTURE(moment.count());
      Program program({ringside_binary, "train", "-n", "3", "--backend", backend, "--threads", "1",
                       "--steps", "1000000", "--batch", "6", "--sequence", "32", "--layers", "1"});
      while (program.processes_of_rank(victim).empty())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(moment);
      for (const pid_t pid : program.processes_of_rank(victim)) ::kill(pid, SIGKILL);
      const Outcome outcome = program.wait();
      CAPTURE(outcome.err);
      CHECK(contains(outcome.err,
                     fmt::format("ringside: rank {} was killed by signal 9 (SIGKILL)\n", victim)));
      CHECK(outcome.exit_code == 128 + SIGKILL);
      CHECK(outcome.survivors == "");
    }
}

TEST_CASE("a rank that dies slowly is named although another rank complains before") {
  // Rank 1 is killed with large files open. The kernel closes its files one after the other, and
  // frees the memory of each: rank 0 sees the pipe end long before anybody can wait for rank 1.
  const std::string script = R"(
    dir=$0
    if [ $RANK = 0 ]; then
      mkfifo $dir/pipe $dir/begin
      : >$dir/begin; cat <$dir/pipe; echo 'rank 1 has gone' >&2; exit 3
    fi
    if ! fallocate -l 600M /dev/shm/$$.a || ! fallocate -l 600M /dev/shm/$$.b; then
      rm -f /dev/shm/$$.*; exit 77
    fi
    until [ -p $dir/begin ]; do sleep 0.01; done; cat $dir/begin
    exec 4<>/dev/shm/$$.a 5>$dir/pipe 6<>/dev/shm/$$.b
    rm -f /dev/shm/$$.*
    kill -9 $$)";
  const auto folder = run_program({"mktemp", "-d"}).out;
  const auto outcome = run_program({ringside_binary, "launch", "-n", "2", "--", "sh", "-c", script,
                                    folder.substr(0, folder.size() - 1)});
  run_program({"rm", "-r", folder.substr(0, folder.size() - 1)});
  if (contains(outcome.err, "exit code 77")) {
    MESSAGE("SKIPPED: needs 1.2 GB in /dev/shm");
    return;
  }
  CAPTURE(outcome.err);
  CHECK(contains(outcome.err, "[0] rank 1 has gone\n"));
  CHECK(contains(outcome.err, "ringside: rank 1 was killed by signal 9 (SIGKILL)\n"));
  CHECK_FALSE(contains(outcome.err, "ringside: rank 0"));
  CHECK(outcome.exit_code == 128 + SIGKILL);
}

TEST_CASE("the rank that gives up first is named although it ends last") {
  // Rank 1 may not start a thread (threads_test.cpp). It tells the others, and ends after them.
  const std::string script = R"(
    if [ $RANK != 1 ]; then exec "$@"; fi
    ulimit -s 140000000000 || exit 77
    "$@"
    sleep 1; exit 3)";
  for (const char* backend : {"tcp", "shm"}) {
    CAPTURE(backend);
    const auto outcome = run_program({ringside_binary,
                                      "launch",
                                      "-n",
                                      "3",
                                      "--",
                                      "sh",
                                      "-c",
                                      script,
                                      "sh",
                                      ringside_binary,
                                      "train",
                                      "--parallel",
                                      "overlap",
                                      "--backend",
                                      backend,
                                      "--threads",
                                      "1",
                                      "--steps",
                                      "2",
                                      "--batch",
                                      "3",
                                      "--sequence",
                                      "16"});
    CAPTURE(outcome.err);
    CHECK(contains(outcome.err, "ringside: rank 1 ended with exit code 3\n"));
    CHECK_FALSE(contains(outcome.err, "ringside: rank 0 ended"));
    CHECK(outcome.exit_code == 3);
    CHECK(outcome.survivors == "");
  }
}
