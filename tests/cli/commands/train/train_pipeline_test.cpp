// `ringside train --mesh pp=...`, as a user types it: the same bits as one rank, the trace of a
// pipeline, resuming elsewhere, and refusals with what would fit.
#include <sstream>

#include "base/read_file.hpp"
#include "tests/cli/commands/train/training.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

const Command four_layers = {"--layers", "4", "--dtype", "fp64", "--optimizer", "sgd"};

Command with(Command command, const Command& more) {
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

}  // namespace

TEST_CASE(
    "train: a pipeline gives the bits of one rank, and its trace shows what each stage does") {
  const Training training(with(four_layers, {"--steps", "5", "--micro-batches", "4"}));
  const Outcome alone = training.run({"--save", training.path("alone").string()});
  CHECK(alone.err == "");
  const auto trace = training.path("trace.json");
  const Outcome pipeline =
      training.run({"-n", "2", "--mesh", "pp=2", "--schedule", "zb_h1", "--save",
                    training.path("pipeline").string(), "--trace", trace.string(), "--report",
                    training.path("report.html").string()});
  CHECK(pipeline.err == "");
  CHECK(pipeline.exit_code == 0);
  CHECK(contains(pipeline.out, "ranks    2 over shm, mesh pp=2, zb_h1, single, 1 thread each\n"));
  CHECK(largest_difference_of(training.path("alone") / "model.safetensors",
                              training.path("pipeline") / "model.safetensors") == 0);
  const std::string spans = read_file(trace);
  for (const char* span : {"forward", "backward input", "backward weight", "wait for send"}) {
    CAPTURE(span);
    CHECK(contains(spans, span));
  }
  CHECK(contains(read_file(training.path("report.html")), R"("backward weight","1W3",)"));
}

// The example of docs/pipeline_parallel.md, shorter: on the text that train reads by default.
TEST_CASE("train: pp=2,tp=2 prints the losses of one rank on real text") {
  const auto losses = [](const Command& ranks) {
    const Outcome outcome =
        run_program(with({ringside_binary, "train", "--d-model", "32", "--layers", "4", "--heads",
                          "4", "--sequence", "32", "--batch", "8", "--micro-batches", "4",
                          "--threads", "1", "--steps", "12"},
                         ranks),
                    {}, Seconds(100));
    CHECK(outcome.err == "");
    std::string all;
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("step ")) all += line.substr(0, line.find(" bits/byte")) + "\n";
    CHECK(contains(outcome.out, "held out "));
    return all + outcome.out.substr(outcome.out.find("held out ")).substr(0, 14);
  };
  const std::string alone = losses({});
  CHECK(contains(alone, "step 12/12  loss "));
  CHECK(losses({"-n", "4", "--mesh", "pp=2,tp=2"}) == alone);
}

TEST_CASE("train: a run on pp=2,tp=2 continues on one rank and on another mesh") {
  const Training training(with(four_layers, {"--steps", "6", "--micro-batches", "2"}));
  CHECK(training.run({"--save", training.path("alone").string()}).err == "");
  const std::string saved = training.path("mesh").string();
  CHECK(training
            .run({"-n", "4", "--mesh", "pp=2,tp=2", "--sequence-parallel", "--stop-at", "3",
                  "--save", saved})
            .err == "");
  for (const Command& ranks :
       {Command{}, Command{"-n", "2", "--mesh", "pp=2", "--schedule", "interleaved"}}) {
    const Outcome next = run_program(
        with({ringside_binary, "train", "--data", training.path("text.txt").string(), "--threads",
              "1", "--resume", saved, "--save", training.path("next").string(), "--overwrite"},
             ranks),
        {}, Seconds(60));
    CHECK(next.err == "");
    CHECK(largest_difference_of(training.path("alone") / "model.safetensors",
                                training.path("next") / "model.safetensors") < 1e-12);
  }
}

TEST_CASE("train: what a pipeline cannot divide is refused with what would fit") {
  const Training training(with(four_layers, {"--steps", "2"}));
  const auto refusal = [&](const Command& options) {
    const Outcome outcome = training.run(options);
    CHECK(outcome.exit_code != 0);
    CHECK(outcome.out == "");
    return outcome.err;
  };
  CHECK(contains(refusal({"-n", "2", "--schedule", "1f1b"}),
                 "--schedule needs a pipeline: add --mesh pp=2, for example"));
  CHECK(contains(refusal({"-n", "2", "--mesh", "pp=2", "--micro-batches", "5"}),
                 "a rank's share of 12 sequences does not divide into 5 micro-batches"));
  CHECK(
      contains(refusal({"-n", "2", "--mesh", "pp=2", "--schedule", "2f2b"}),
               "gpipe, 1f1b, interleaved, looped_bfs, zb_h1, zb_v, interleaved_zb and dualpipe_v"));
  CHECK(contains(refusal({"-n", "5", "--mesh", "pp=5"}),
                 "4 layers cannot be divided among the 5 stages of 1f1b on 5 pipeline ranks"));
  CHECK(contains(
      refusal({"-n", "2", "--mesh", "pp=2", "--schedule", "interleaved", "--micro-batches", "3"}),
      "micro-batches"));
}
