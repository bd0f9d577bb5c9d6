// `ringside train --mesh`, as a user types it: the header, checkpoints that any mesh reads,
// refusals with what would fit, and the coordinates of a rank that dies.
#include <csignal>
#include <filesystem>
#include <regex>
#include <sstream>

#include "tests/cli/commands/train/training.hpp"

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

// fsdp shards by zero3 if --parallel does not say otherwise; cp exchanges by a ring in zigzag
// order.
TEST_CASE("train: shards, copies and divided sequences give the same numbers as one rank") {
  const Training training({"--steps", "4", "--dtype", "fp64", "--optimizer", "sgd"});
  const Outcome alone =
      training.run({"--save", training.path("alone").string(), "--eval-every", "2"});
  CHECK(alone.err == "");
  const auto held_out = [](const Outcome& run) {
    return run.out.substr(run.out.find("held out ")).substr(0, 40);
  };
  for (const auto& [mesh, says, more] : std::vector<std::tuple<std::string, std::string, Command>>{
           {"fsdp=2,tp=2", "mesh fsdp=2,tp=2, zero3", {}},
           {"dp=2,fsdp=2", "mesh dp=2,fsdp=2, zero2", {"--parallel", "zero2"}},
           {"cp=2,tp=2", "mesh cp=2,tp=2, ring, zigzag order, flat", {}},
           {"fsdp=2,cp=2",
            "mesh fsdp=2,cp=2, all_gather, contiguous order, zero3",
            {"--context", "all_gather", "--token-order", "contiguous"}},
           {"dp=2,cp=2",
            "mesh dp=2,cp=2, ulysses, zigzag order, bucketed",
            {"--context", "ulysses", "--parallel", "bucketed"}}}) {
    CAPTURE(mesh);
    Command options = {"-n",           "4",      "--mesh",
                       mesh,           "--save", training.path("mesh").string(),
                       "--eval-every", "2",      "--overwrite"};
    options.insert(options.end(), more.begin(), more.end());
    const Outcome run = training.run(options);
    CHECK(run.err == "");
    CHECK(contains(run.out, says));
    CHECK(largest_difference_of(training.path("alone") / "model.safetensors",
                                training.path("mesh") / "model.safetensors") < 1e-12);
    CHECK(held_out(run) == held_out(alone));
  }
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
  CHECK(contains(refusal(training, {"-n", "2", "--mesh", "fsdp=2", "--parallel", "bucketed"}),
                 "the ranks of fsdp in --mesh fsdp=2 shard the state, and --parallel bucketed "
                 "shards nothing: choose zero1, zero2 or zero3, or name the axis dp"));
  CHECK(contains(refusal(training, {"-n", "2", "--mesh", "dp=2", "--context", "ring"}),
                 "--context needs context parallel: add --mesh cp=2, for example"));
  CHECK(contains(refusal(training, {"-n", "2", "--token-order", "zigzag"}),
                 "--token-order needs context parallel: add --mesh cp=2, for example"));
  CHECK(contains(refusal(training, {"-n", "2", "--mesh", "cp=2", "--sequence", "10"}),
                 "sequences of 10 tokens do not divide into 4 equal pieces, which zigzag order "
                 "needs on 2 context-parallel ranks: choose a --sequence that is a multiple of 4"));
  CHECK(contains(refusal(training, {"-n", "2", "--mesh", "cp=2", "--parallel", "single"}),
                 "--parallel single trains on one rank, not on 2: choose another strategy"));
  CHECK(contains(refusal(training, {"-n", "2", "--mesh", "cp=2", "--sample", "5"}),
                 "generation on a mesh is not supported"));
  CHECK(contains(
      refusal(training, {"-n", "2", "--mesh", "cp=2", "--context", "ring", "--device", "emulated"}),
      "--context ring merges blocks on the CPU only: choose all_gather or ulysses"));
  CHECK(contains(refusal(training, {"-n", "6", "--mesh", "dp=3,tp=2", "--batch", "10"}),
                 "10 sequences"));
  CHECK(contains(refusal(training, {"-n", "2", "--mesh", "tp=2", "--memory-limit", "0.00001"}),
                 "this needs about"));
}

TEST_CASE("train: a rank of a mesh that dies is named with its coordinates") {
  const Training training({});
  for (const auto& [mesh, place] :
       std::vector<std::pair<std::string, std::string>>{{"dp=2,tp=2", "dp=1,tp=1"},
                                                        {"fsdp=2,cp=2", "fsdp=1,cp=1"},
                                                        {"dp=2,fsdp=2", "dp=1,fsdp=1"}}) {
    CAPTURE(mesh);
    Program program(training.command({"--steps", "100000", "-n", "4", "--mesh", mesh}));
    REQUIRE(program.wait_for("step      1/100000", Seconds(30)));
    for (const pid_t process : program.processes_of_rank(3)) ::kill(process, SIGKILL);
    const Outcome outcome = program.wait();
    CHECK(
        contains(outcome.err, fmt::format("rank 3 ({}) was killed by signal 9 (SIGKILL)", place)));
    CHECK(outcome.exit_code == 137);
    CHECK(outcome.survivors == "");
  }
}

namespace {

// The numbers of ranks in a text that no coordinates follow.
std::string without_coordinates(const std::string& text) {
  static const std::regex named(R"(ranks? [0-9](?!,? \(?[a-z]+=|[0-9,]* of the job\)).*)");
  std::smatch found;
  return std::regex_search(text, found, named) ? found.str() : "";
}

// A sentence of a rank whose time was over, if it blames another rank than the one at `place`.
std::string blames_another(const std::string& text, const std::string& place) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (contains(line, "nothing came to rank") &&
        !contains(line, fmt::format(": rank 3 ({}) does not answer: ", place)))
      return line;
  return "";
}

}  // namespace

TEST_CASE("train: on a mesh every sentence names ranks by their numbers and coordinates") {
  const Training training({"--layers", "2"});
  for (const char* backend : {"tcp", "shm"})
    for (const auto& [mesh, place] : std::vector<std::pair<std::string, std::string>>{
             {"dp=2,tp=2", "dp=1,tp=1"}, {"pp=2,dp=2", "pp=1,dp=1"}})
      for (const int signal : {SIGKILL, SIGSTOP}) {
        CAPTURE(backend);
        CAPTURE(mesh);
        CAPTURE(signal);
        Variables variables{{"RINGSIDE_TIMEOUT", "2"}, {"RINGSIDE_WARN_AFTER", "1"}};
        if (std::string(backend) == "shm")  // a folder of the user's, beside one of the launcher's
          variables["RINGSIDE_FLIGHT_DIR"] = training.path("flights").string();
        Program program(training.command(
                            {"--steps", "100000", "-n", "4", "--mesh", mesh, "--backend", backend}),
                        variables);
        REQUIRE(program.wait_for("step      1/100000", Seconds(30)));
        for (const pid_t process : program.processes_of_rank(3)) ::kill(process, signal);
        const Outcome outcome = program.wait();
        CAPTURE(outcome.err);
        CHECK(without_coordinates(outcome.err) == "");
        CHECK(contains(outcome.err,
                       fmt::format("ringside: rank 3 ({}) {}", place,
                                   signal == SIGKILL ? "was killed by signal 9 (SIGKILL)\n"
                                                     : "does not answer, so rank ")));
        if (signal == SIGSTOP) CHECK(blames_another(outcome.err, place) == "");
        CHECK(outcome.survivors == "");
        const std::string folder = outcome.err.substr(outcome.err.rfind(' ') + 1);
        const auto report =
            run_program({ringside_binary, "postmortem", folder.substr(0, folder.find('\n'))});
        CAPTURE(report.out);
        const std::string verdict = report.out.substr(0, report.out.find('\n'));
        CHECK(contains(verdict, fmt::format("look at rank 3 ({}).", place)));
        CHECK(without_coordinates(report.out) == "");
        std::filesystem::remove_all(folder.substr(0, folder.find('\n')));
      }
}

TEST_CASE("train: the rank with the least patience names one that it shares no group with") {
  // Rank 0 has the least patience. It is in no group with rank 3, and waits for rank 1 or 2.
  const Training training({"--layers", "2"});
  std::string train = "exec";
  for (const std::string& word :
       training.command({"--steps", "100000", "--mesh", "pp=2,dp=2", "--backend", "tcp"}))
    train += " '" + word + "'";
  Program program({ringside_binary, "launch", "-n", "4", "--grace", "3", "--", "sh", "-c",
                   "export RINGSIDE_TIMEOUT=$((RANK == 0 ? 1 : 2)); " + train});
  REQUIRE(program.wait_for("step      1/100000", Seconds(30)));
  for (const pid_t process : program.processes_of_rank(3)) ::kill(process, SIGSTOP);
  const Outcome outcome = program.wait();
  CAPTURE(outcome.err);
  CHECK(blames_another(outcome.err, "pp=1,dp=1") == "");
  CHECK(contains(outcome.err,
                 "\nringside: rank 3 does not answer, so rank 0 ended with exit code 1\n"));
  CHECK(outcome.survivors == "");
}
