// `ringside status`: the ranks of a job that runs.
#include <csignal>
#include <filesystem>
#include <regex>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/cli/run_program.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

// Repeats the command until its output contains the text: at most 20 seconds.
std::string status_with(const std::string& text, pid_t rank) {
  std::string out;
  eventually([&] {
    const Outcome outcome = run_program({ringside_binary, "status", std::to_string(rank)});
    CHECK(outcome.err == "");
    out = outcome.out;
    return contains(out, text);
  });
  return out;
}

}  // namespace

TEST_CASE("status names each rank of a mesh, its call, and the rank that all wait for") {
  for (const char* backend : {"tcp", "shm"}) {
    CAPTURE(backend);
    const TemporaryDirectory folder;
    Program program({ringside_binary, "train", "-n", "4", "--mesh", "dp=2,tp=2", "--backend",
                     backend, "--threads", "1", "--steps", "100000", "--batch", "4", "--sequence",
                     "32", "--layers", "1"},
                    {{"TMPDIR", folder.path().string()}});
    REQUIRE(program.wait_for("step      1/100000"));
    const pid_t first = program.processes_of_rank(0).front();
    const pid_t third = program.processes_of_rank(3).front();

    // Until a rank is looked at in a call.
    const std::string running = status_with(", step ", first);
    CAPTURE(running);
    for (const char* name : {"rank 0 (dp=0,tp=0) ", "rank 1 (dp=0,tp=1) ", "rank 2 (dp=1,tp=0) ",
                             "rank 3 (dp=1,tp=1) "})
      CHECK(contains(running, name));
    CHECK(std::regex_search(running, std::regex("all_reduce of .*, step [1-9] of [1-9]")));

    ::kill(third, SIGSTOP);
    const std::string stopped = status_with("Look at rank 3: others wait for it", first);
    CAPTURE(stopped);
    CHECK(contains(stopped, fmt::format("rank 3   stopped: kill -CONT {} lets it go on\n", third)));
    CHECK(contains(stopped, "; waits for rank 3\n"));
    CHECK(std::filesystem::is_empty(folder.path()));  // no record is left

    ::kill(third, SIGCONT);
    const std::string again = status_with("No rank has waited for longer than a second.", first);
    CHECK(contains(again, "rank 3 (dp=1,tp=1) "));
    program.send(SIGINT);
    CHECK(program.wait().exit_code == 128 + SIGINT);
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}

TEST_CASE("status says of which process it knows no job") {
  const Outcome outcome = run_program({ringside_binary, "status", "1"});
  CHECK(outcome.exit_code == 1);
  const bool known = contains(outcome.err, "process 1 is no rank of a job that runs") ||
                     contains(outcome.err, "no job of yours runs on this machine");
  CHECK(known);
}
