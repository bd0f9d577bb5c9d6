// A rank that dies: its events never fire. The others end soon, with a sentence that names it,
// though their streams wait for it.
#include <csignal>

#include "tests/cli/commands/train/training.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::testing;

TEST_CASE("training on GPUs ends soon after the death of a rank, and names it") {
  for (const std::string backend : {"cuda_ipc", "nccl"})
    for (const int signal : {SIGKILL, SIGSEGV}) {
      CAPTURE(backend);
      CAPTURE(signal);
      const Training training(
          {"-n", "3", "--steps", "1000000", "--device", "cuda", "--device-backend", backend});
      Program program(training.command(), {{"RINGSIDE_STANDIN_DEVICES", "8"}});
      REQUIRE(program.wait_for("bits/byte", Seconds(60)));
      const auto victims = program.processes_of_rank(1);
      REQUIRE(!victims.empty());
      for (const pid_t process : victims) ::kill(process, signal);
      const Outcome outcome = program.wait(Seconds(60));
      CAPTURE(outcome.err);
      CHECK(!outcome.timed_out);
      CHECK(outcome.exit_code != 0);
      CHECK(contains(outcome.err, "rank 1"));
      CHECK(outcome.seconds < 40);
      CHECK(outcome.survivors == "");
    }
}

TEST_CASE("an interrupted run on GPUs ends after its step") {
  const Training training({"-n", "3", "--steps", "1000000", "--device", "cuda"});
  Program program(training.command({"--save", training.path("saved").string()}));
  REQUIRE(program.wait_for("bits/byte", Seconds(60)));
  program.send(SIGINT);
  const Outcome outcome = program.wait(Seconds(60));
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 128 + SIGINT);
  CHECK(contains(outcome.out, "stopped  after step "));
}
