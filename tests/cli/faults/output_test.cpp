// A full disk is an error of the rank that writes, and it leaves a record.

#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/cli/run_program.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside::testing;

namespace {

Outcome onto_full_device(std::vector<std::string> arguments) {
  std::vector<std::string> command{"sh", "-c", R"(exec "$0" "$@" >/dev/full)", ringside_binary};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_program(command);
}

const std::vector<std::string> train_briefly{
    "train", "--threads", "1", "--steps", "2", "--batch", "6", "--sequence", "16", "--layers", "1"};

std::vector<std::string> with(std::vector<std::string> all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

TEST_CASE("a command whose standard output is full says so and fails") {
  const TemporaryDirectory folder;
  const std::string model = folder.path() / "model";
  REQUIRE(run_program(with(with({ringside_binary}, train_briefly), {"--save", model})).exit_code ==
          0);
  const std::vector<std::vector<std::string>> commands{
      {"step", "all_reduce", "-n", "4"},
      {"prove", "--algorithm", "ring"},
      {"generate", "--init", model, "--tokens", "4"},
      {"bench", "all_reduce", "-n", "2", "--bytes", "4B", "--backends", "tcp", "--repeat", "4"},
      train_briefly,
      with(train_briefly, {"-n", "3"}),
      {"launch", "-n", "2", "--", "echo", "a line"},
  };
  for (const auto& command : commands) {
    CAPTURE(command[0]);
    const auto outcome = onto_full_device(command);
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 1);
    CHECK(contains(outcome.err, "ringside: cannot write to "));
    CHECK(outcome.survivors == "");
  }
}

TEST_CASE("a rank that fails outside of a collective leaves a record that says why") {
  for (const char* backend : {"tcp", "shm", "threads"}) {
    CAPTURE(backend);
    const TemporaryDirectory folder;
    const std::string flights = folder.path() / "flights";
    const auto outcome =
        run_program(with(with({ringside_binary}, train_briefly),
                         {"-n", "3", "--backend", backend, "--metrics", "/dev/full"}),
                    {{"RINGSIDE_FLIGHT_DIR", flights}});
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 1);
    const auto report = run_program({ringside_binary, "postmortem", flights});
    CAPTURE(report.out);
    CHECK(contains(report.out, "First to write, rank 0: "));
    CHECK(contains(report.out, "cannot write metrics to /dev/full: is the disk full?\n"));
    CHECK_FALSE(contains(report.out, "left no record"));
  }
}
