// `--elastic`: the others go on without a rank that is lost, and what they compute is what a run
// computes that was planned with the same members.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/sample.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path = fs::temp_directory_path() / fmt::format("ringside-elastic-{}", ::getpid());
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }
};

std::vector<std::string> train(const std::vector<std::string>& options) {
  std::vector<std::string> command{
      ringside_binary, "train",   "--threads",  "1",
      "--steps",       "1000000", "--sequence", "16",
      "--layers",      "1",       "--d-model",  "32",
      "--heads",       "2",       "--data",     RINGSIDE_ROOT "/docs/design.md"};
  command.insert(command.end(), options.begin(), options.end());
  return command;
}

void kill_rank(const Program& program, int rank, int signal = SIGKILL) {
  for (const pid_t pid : program.processes_of_rank(rank)) ::kill(pid, signal);
}

// The steps that a file of metrics has, and how many ranks took each; none before it is there.
std::vector<std::pair<int, int>> steps_of(const std::string& metrics) {
  std::vector<std::pair<int, int>> steps;
  std::istringstream lines(read_if_possible(metrics).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const auto row = Json::parse_if_possible(line);
    if (row && row->contains("ranks"))
      steps.emplace_back(row->at("step"), static_cast<int>(row->at("ranks").size()));
  }
  return steps;
}

void check_every_step(const std::vector<std::pair<int, int>>& steps, int last) {
  REQUIRE(static_cast<int>(steps.size()) == last);
  for (int i = 0; i < last; ++i) CHECK(steps[static_cast<std::size_t>(i)].first == i + 1);
}

}  // namespace

TEST_CASE("elastic runs that lose ranks equal planned runs to the bit") {
  if (run_program({"sh", "-c", "command -v python3"}).exit_code != 0) {
    MESSAGE("SKIPPED: there is no python3");
    return;
  }
  // Over tcp and shm in turns. Another seed in each run of this test; `tools/elastic-check` has
  // 100.
  const std::string seed = std::to_string(::getpid());
  Sample sample;
  int taken = 0;
  for (int i = 0; i < 5; ++i) taken += i == 0 || sample.takes();
  const auto outcome =
      run_program({RINGSIDE_ROOT "/tools/elastic-check", std::to_string(taken), ringside_binary},
                  {{"STEPS", "60"}, {"SEED", seed}}, Seconds(250));
  CAPTURE(outcome.out);
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, fmt::format("{0} of {0} elastic runs, with ", taken)));
}

TEST_CASE("a rank that is killed or stopped is replaced and the rank that printed too") {
  for (const char* backend : {"tcp", "shm"})
    for (const int signal : {SIGKILL, SIGSTOP}) {
      CAPTURE(backend);
      CAPTURE(signal);
      const Folder folder;
      const std::string metrics = folder / "metrics", saved = folder / "saved";
      Program program(train({"--elastic", "2:3", "--backend", backend, "--metrics", metrics,
                             "--save", saved, "--seed", "3"}));
      REQUIRE(eventually([&] { return steps_of(metrics).size() > 5; }));
      kill_rank(program, 0, signal);
      REQUIRE(program.wait_for("and another process takes its place\n"));
      if (signal == SIGSTOP)
        CHECK(contains(program.err(), "ringside: rank 0 has been stopped for 1 s: ending it\n"));
      CHECK(contains(program.err(),
                     "ringside: rank 0 was killed by signal 9 (SIGKILL); 2 ranks go "
                     "on, and another process takes its place\n"));
      REQUIRE(program.wait_for("[1] members  ranks 0 to 2 after step "));
      const auto taken = steps_of(metrics).size();  // all later steps are those of three ranks
      REQUIRE(eventually([&] { return steps_of(metrics).size() > taken + 5; }));
      program.send(SIGTERM);
      const Outcome outcome = program.wait();
      CAPTURE(outcome.out);
      CAPTURE(outcome.err);
      CHECK(outcome.exit_code == 128 + SIGTERM);
      CHECK(outcome.survivors == "");
      const auto steps = steps_of(metrics);
      check_every_step(steps, static_cast<int>(steps.size()));
      CHECK(steps.back().second == 3);
      CHECK(contains(outcome.out,
                     fmt::format("stopped  after step {} of 1000000", steps.back().first)));
      CHECK(fs::exists(saved + fmt::format("/training-{}.safetensors", steps.back().first)));
    }
}

TEST_CASE("with fewer ranks than MIN the last ones save and nothing is lost") {
  const Folder folder;
  const std::string metrics = folder / "metrics", saved = folder / "saved";
  Program program(
      train({"--elastic", "2:2", "--restarts", "0", "--metrics", metrics, "--save", saved}));
  REQUIRE(eventually([&] { return steps_of(metrics).size() > 5; }));
  kill_rank(program, 0);
  const Outcome outcome = program.wait();
  CAPTURE(outcome.out);
  CHECK(contains(outcome.err,
                 "ringside: rank 0 was killed by signal 9 (SIGKILL); 1 of the 2 ranks that "
                 "--elastic needs is left: ending the job\n"));
  CHECK(outcome.exit_code == 128 + SIGKILL);
  CHECK(outcome.survivors == "");
  const auto steps = steps_of(metrics);
  const int last = steps.back().first;
  check_every_step(steps, last);
  CHECK(
      contains(outcome.out, fmt::format("[1] stopped  after step {} of 1000000; to go on:", last)));
  CHECK(fs::exists(saved + fmt::format("/training-{}.safetensors", last)));
}

TEST_CASE("when all ranks are lost at once no new one begins from the start") {
  Program program(train({"--elastic", "1:2"}));
  REQUIRE(program.wait_for("[0] step "));
  program.send(SIGSTOP);  // the launcher: it must not replace the first before the second is gone
  kill_rank(program, 0);
  kill_rank(program, 1);
  program.send(SIGCONT);
  const Outcome outcome = program.wait();
  CHECK(
      contains(outcome.err,
               "ringside: no rank is left that has the parameters of the run: go on from the last "
               "checkpoint, with --resume\n"));
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.survivors == "");
}

TEST_CASE("a job on a mesh that loses a rank starts again from its last checkpoint") {
  const Folder folder;
  const std::string metrics = folder / "metrics", saved = folder / "saved";
  Program program(train({"-n", "2", "--mesh", "tp=2", "--restarts", "1", "--save-every", "5",
                         "--metrics", metrics, "--save", saved}));
  REQUIRE(eventually([&] { return fs::exists(saved + "/model.safetensors"); }));
  kill_rank(program, 1);
  REQUIRE(program.wait_for("ringside: starting all ranks again (1 of 1)\n"));
  REQUIRE(program.wait_for("resumed  after step "));
  REQUIRE(eventually([&] {
    const std::string rows = read_if_possible(metrics).value_or("");
    return std::count(rows.begin(), rows.end(), '\n') > 7;
  }));
  kill_rank(program, 1);
  const Outcome outcome = program.wait();
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 128 + SIGKILL);
  CHECK(outcome.survivors == "");
  std::istringstream lines(read_file(metrics));
  int rows = 0;
  for (std::string line; std::getline(lines, line);) CHECK(Json::parse(line)["step"] == ++rows);
  CHECK(rows >= 5);  // those of the checkpoint; the second kill may come before a further step
}

TEST_CASE("a rank that ends with an error of its own ends an elastic job") {
  const auto outcome = run_program(train({"--elastic", "1:2", "--lr", "1e30", "--clip", "0"}));
  CHECK(contains(outcome.err, "training has diverged"));
  CHECK(outcome.exit_code == 1);
}

TEST_CASE("what an elastic run cannot do is said before it starts") {
  struct Case {
    std::vector<std::string> options;
    std::string sentence;
  };
  std::vector<Case> cases{
      {{"--batch", "16"},
       "the batch of 16 sequences must divide among 2 to 4 ranks, as --elastic may have any of "
       "these: take --batch 12, or another multiple of 12"},
      {{"--batch", "12", "--accumulate", "2"},
       "must divide among 2 to 4 ranks in 2 micro-batches each, as --elastic may have any of "
       "these: "
       "take --batch 24, or another multiple of 24"},
      {{"--mesh", "dp=4"}, "--elastic changes the number of ranks: leave out --mesh"},
      {{"--trace", "t.json"},
       "--trace and --report need the same ranks throughout: leave out --elastic"},
      {{"--backend", "threads"},
       "--elastic survives the loss of a process: leave out --backend threads"},
      {{"-n", "3"}, "-n 3 and --elastic 2:4 contradict each other: leave out -n"}};
  for (const char* name : {"zero1_broadcast", "zero1", "zero2", "zero3", "diloco:4"})
    cases.push_back({{"--parallel", name},
                     fmt::format("naive, flat, overlap or bucketed, not {}; any other goes on from "
                                 "its last checkpoint, with --restarts N",
                                 name)});
  for (const auto& [options, sentence] : cases) {
    auto all = options;
    all.insert(all.end(), {"--elastic", "2:4"});
    const auto outcome = run_program(train(all));
    CAPTURE(outcome.err);
    CHECK(contains(outcome.err, sentence));
    CHECK(outcome.exit_code == 2);
  }
  const auto alone = run_program(train({"--elastic", "1:1"}), {{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  CHECK(contains(alone.err, "an elastic rank needs Ringside's launcher"));
  for (const std::vector<std::string>& command :
       {train({"--elastic", "1:2", "--steps", "1"}),
        std::vector<std::string>{ringside_binary, "launch", "--elastic", "1:2", "--", "true"}}) {
    const auto by_srun = run_program(
        command, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}});
    CHECK(by_srun.err ==
          "ringside: --elastic starts its ranks itself, but srun has started 4 tasks, each of "
          "which would start a job: take one, srun -n 1\n");
    CHECK(by_srun.exit_code == 1);
  }
}
