// `-n N` of a command that runs on several ranks, and the same command under an outer launcher.

#include <csignal>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/cli/run_program.hpp"

using namespace ringside::testing;

TEST_CASE("with -n a command starts its ranks itself") {
  const auto outcome = run_program({ringside_binary, "hello", "-n", "3"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  CHECK(outcome.out.starts_with("3 ranks over shm."));  // rank 0 prints without a prefix
  CHECK(outcome.survivors == "");
}

TEST_CASE("one rank runs in the process of the command") {
  const auto outcome = run_program({ringside_binary, "hello", "-n", "1"});
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "1 rank"));
}

TEST_CASE("under an outer launcher a command takes its rank from the environment") {
  for (const std::vector<std::string>& own : {std::vector<std::string>{}, {"-n", "2"}}) {
    std::vector<std::string> command{ringside_binary, "launch", "-n", "2", "--",
                                     ringside_binary, "hello"};
    command.insert(command.end(), own.begin(), own.end());
    const auto outcome = run_program(command);
    CHECK(outcome.exit_code == 0);
    CHECK(outcome.err == "");
    CHECK(contains(outcome.out, "[0] 2 ranks over shm."));
    CHECK_FALSE(contains(outcome.out, "[0] [0]"));
  }
}

TEST_CASE("a number of ranks that contradicts the outer launcher is refused") {
  auto outcome =
      run_program({ringside_binary, "hello", "-n", "4"}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.err ==
        "ringside: -n asks for 4 ranks, but the environment says that this process is one of 2: "
        "leave out -n, or unset RANK and WORLD_SIZE\n"
        "Try: ringside hello --help\n");
  outcome = run_program({ringside_binary, "hello", "-n", "4"}, {{"RANK", "0"}});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.err ==
        "ringside: RANK is set but WORLD_SIZE is not: a launcher sets both; unset RANK to start "
        "ranks from here\n");
}

TEST_CASE("in a batch script of Slurm a command without srun says what is missing") {
  const Variables script{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "99"}};
  const auto alone = run_program({ringside_binary, "hello"}, script);
  CHECK(alone.exit_code == 2);
  CHECK(alone.err ==
        "ringside: this job of Slurm has 4 tasks, but srun has not started this process as one of "
        "them: put srun before the command, or start the ranks on this host with -n\n"
        "Try: ringside hello --help\n");
  CHECK(run_program({ringside_binary, "hello", "-n", "2"}, script).exit_code == 0);
}

TEST_CASE("under mpirun the ranks meet by the variables of Open MPI") {
  const std::vector<std::string> mpirun{"mpirun", "--allow-run-as-root", "--oversubscribe", "-n",
                                        "3"};
  const auto under_mpirun = [&](const std::vector<std::string>& arguments) {
    auto command = mpirun;
    command.push_back(ringside_binary);
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_program(command, {}, ringside::Seconds(60));
  };
  if (run_program({"sh", "-c", "command -v mpirun"}).exit_code != 0) {
    MESSAGE("SKIPPED: needs mpirun (openmpi-bin)");
    return;
  }
  for (const char* backend : {"tcp", "shm"}) {
    const auto outcome = under_mpirun({"hello", "--backend", backend});
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 0);
    CHECK(contains(outcome.out, fmt::format("3 ranks over {}. Each collective", backend)));
    CHECK(outcome.survivors == "");
  }
  const auto training = under_mpirun(
      {"train", "-n", "3", "--steps", "2", "--sequence", "32", "--batch", "3", "--threads", "1"});
  CHECK(training.exit_code == 0);
  CHECK(contains(training.out + training.err, "step 2/2"));
  const auto other_number = under_mpirun({"hello", "-n", "2"});
  CHECK(other_number.exit_code == 2);
  CHECK(contains(other_number.err,
                 "ringside: -n asks for 2 ranks, but the environment says that this process is one "
                 "of 3: leave out -n, or unset OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE\n"));
}

TEST_CASE("an interrupted training leaves no process") {
  for (const int signal : {SIGINT, SIGKILL}) {
    CAPTURE(signal);
    Program program({ringside_binary, "train", "-n", "3", "--steps", "100000", "--sequence", "32",
                     "--threads", "1"});
    REQUIRE(program.wait_for("bits"));
    program.send(signal);
    const auto outcome = program.wait();
    CHECK((signal == SIGINT ? outcome.exit_code : outcome.signal) ==
          (signal == SIGINT ? 128 + SIGINT : SIGKILL));
    CHECK(outcome.survivors == "");
    CHECK_FALSE(outcome.timed_out);
  }
}
