// `ringside train --mesh`, as a user types it: the header, checkpoints that any mesh reads,
// refusals with what would fit, and the coordinates of a rank that dies.
#include <csignal>
#include <sstream>

#include "tests/cli/commands/training/training.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

std::string refusal(const Training& training, const Command& options) {
  const Outcome outcome = training.run(options);
  CHECK(outcome.exit_code != 0);
  CHECK(outcome.out == "");
  return outcome.err;
}

}  // namespace

TEST_CASE("train: a mesh gives the same numbers as one rank, and says what it is") {
  const Training training({"--steps", "6", "--dtype", "fp64", "--optimizer", "sgd"});
  const Outcome alone = training.run({"--save", training.path("alone").string(), "--dump",
                                      training.path("dump1").string(), "--eval-every", "3"});
  CHECK(alone.err == "");
  const Outcome mesh = training.run(
      {"-n", "4", "--mesh", "dp=2,tp=2", "--parallel", "zero1", "--sequence-parallel", "--save",
       training.path("mesh").string(), "--dump", training.path("dump2").string(), "--metrics",
       training.path("metrics").string(), "--eval-every", "3"});
  CHECK(mesh.err == "");
  CHECK(mesh.exit_code == 0);
  CHECK(contains(mesh.out,
                 "ranks    4 over shm, mesh dp=2,tp=2, sequence parallel, zero1, 1 thread each\n"));
  CHECK(contains(mesh.out, "12 sequences of 12 bytes, 6 on each data rank"));
  const std::string waited = mesh.out.substr(mesh.out.find("\nwaited   ") + 1);
  CHECK(contains(waited.substr(0, waited.find('\n')), " s on rank 0: tp "));
  for (const char* step : {"step0001.safetensors", "step0006.safetensors"})
    CHECK(largest_difference_of(training.path("dump1") / step, training.path("dump2") / step) <
          1e-12);
  CHECK(largest_difference_of(training.path("alone") / "model.safetensors",
                              training.path("mesh") / "model.safetensors") < 1e-12);
  CHECK(alone.out.substr(alone.out.find("held out ")).substr(0, 40) ==
        mesh.out.substr(mesh.out.find("held out ")).substr(0, 40));

  // One rank, and another mesh, continue what the mesh saved.
  const std::string saved = training.path("mesh").string();
  for (const Command& ranks :
       {Command{}, Command{"-n", "2", "--mesh", "tp=2"}, Command{"-n", "3", "--mesh", "dp=3"}}) {
    Command command = {ringside_binary, "train", "--data",  training.path("text.txt").string(),
                       "--threads",     "1",     "--steps", "8",
                       "--resume",      saved,   "--save",  training.path("next").string(),
                       "--overwrite"};
    command.insert(command.end(), ranks.begin(), ranks.end());
    const Outcome next = run_program(command, {}, Seconds(60));
    CHECK(next.err == "");
    CHECK(next.exit_code == 0);
    CHECK(contains(next.out, "resumed  after step 6\n"));
  }
}

TEST_CASE("train: a mesh says before the run what each kind of stage needs") {
  const Training training({"--steps", "1", "--layers", "4"});
  const auto memory_of = [&](const Command& options) {
    const Outcome run = training.run(options);
    CAPTURE(run.err);
    REQUIRE(run.exit_code == 0);
    std::vector<std::string> lines;
    std::istringstream out(run.out);
    for (std::string line; std::getline(out, line) && line != "";)
      if (!lines.empty() || line.starts_with("memory   ")) lines.push_back(line.substr(9));
    return lines;
  };
  const auto stages = memory_of({"-n", "4", "--mesh", "pp=4"});
  REQUIRE(stages.size() == 4);
  for (std::size_t i = 0; i < stages.size(); ++i)
    CHECK(stages[i].starts_with(fmt::format("pp={}: ", i)));
  for (const std::string& stage : stages)
    for (const char* kind : {"(parameters ", ", gradients ", ", optimizer ", ", activations "})
      CHECK(contains(stage, kind));
  // Under 1F1B an earlier stage keeps more micro-batches.
  const auto under_way = memory_of({"-n", "4", "--mesh", "pp=4", "--micro-batches", "4"});
  REQUIRE(under_way.size() == 4);
  const auto each = memory_of({"-n", "2", "--mesh", "tp=2"});
  REQUIRE(each.size() == 1);
  CHECK(each[0].starts_with("each rank: "));
  CHECK(memory_of({"-n", "2"}).empty());
  // The largest is the one that the check of the machine's memory counts.
  CHECK(contains(refusal(training, {"-n", "4", "--mesh", "pp=4", "--memory-limit", "0.0000001"}),
                 "4 ranks of"));
}

TEST_CASE("train: what a mesh cannot divide is refused with what would fit") {
  const Training training({"--steps", "2"});
  CHECK(contains(refusal(training, {"-n", "4", "--mesh", "tp=2"}),
                 "--mesh tp=2 needs 2 ranks, but there are 4"));
  CHECK(contains(refusal(training, {"-n", "4", "--mesh", "tp=4"}),
                 "2 heads and d_ff 20 cannot be divided among 4 tensor-parallel ranks: choose tp=1 "
                 "or 2"));
  CHECK(contains(
      refusal(training, {"-n", "2", "--mesh", "tp=2", "--sequence", "11", "--sequence-parallel"}),
      "sequences of 11 tokens cannot be divided among 2 tensor-parallel ranks: choose a "
      "--sequence that is a multiple of 2, or leave out --sequence-parallel"));
  CHECK(contains(refusal(training, {"-n", "2", "--sequence-parallel"}),
                 "--sequence-parallel needs a mesh: add --mesh tp=2, for example"));
  CHECK(contains(refusal(training, {"-n", "2", "--mesh", "dp=2", "--sequence-parallel"}),
                 "--mesh dp=2 has no tp: add tp=2, or leave out --sequence-parallel"));
  CHECK(contains(
      refusal(training, {"-n", "4", "--mesh", "dp=2,tp=2", "--parallel", "zero1_broadcast"}),
      "use zero1 on --mesh dp=2,tp=2"));
  CHECK(contains(refusal(training, {"-n", "4", "--mesh", "dp=2,tp=2", "--parallel", "single"}),
                 "--parallel single trains on one rank, not on 2: choose another strategy"));
  CHECK(contains(refusal(training, {"-n", "2", "--mesh", "tp=2", "--sample", "5"}),
                 "generation on a mesh is not supported: leave out --sample, save the model with "
                 "--save DIR and run ringside generate --init DIR"));
  CHECK(contains(refusal(training, {"-n", "6", "--mesh", "dp=3,tp=2", "--batch", "10"}),
                 "10 sequences"));
  CHECK(contains(refusal(training, {"-n", "2", "--mesh", "tp=2", "--memory-limit", "0.00001"}),
                 "this needs about"));
}

TEST_CASE("train: a rank of a mesh that dies is named with its coordinates") {
  const Training training({});
  Program program({ringside_binary,
                   "train",
                   "--data",
                   training.path("text.txt").string(),
                   "--d-model",
                   "16",
                   "--layers",
                   "1",
                   "--heads",
                   "2",
                   "--d-ff",
                   "20",
                   "--sequence",
                   "12",
                   "--batch",
                   "12",
                   "--threads",
                   "1",
                   "--steps",
                   "100000",
                   "-n",
                   "4",
                   "--mesh",
                   "dp=2,tp=2",
                   "--parallel",
                   "bucketed"});
  REQUIRE(program.wait_for("step      1/100000", Seconds(30)));
  for (const pid_t process : program.processes_of_rank(3)) ::kill(process, SIGKILL);
  const Outcome outcome = program.wait();
  CHECK(contains(outcome.err, "rank 3 (dp=1,tp=1) was killed by signal 9 (SIGKILL)"));
  CHECK(outcome.exit_code == 137);
  CHECK(outcome.survivors == "");
}
