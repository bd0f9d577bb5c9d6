// `ringside train`: its output, its files, and gradients that do not depend on the number of ranks.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "tests/cli/commands/train/training.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/sample.hpp"
#include "training/matrix_libraries.hpp"
#include "transformer/checkpoint/safetensors.hpp"

namespace ringside::cli {
namespace {

using namespace testing;
using transformer::SafetensorsFile;

// The largest difference between the gradients and parameters of two runs after each of `steps`
// steps.
double largest_difference(const std::filesystem::path& one, const std::filesystem::path& other,
                          int steps) {
  double largest = 0;
  for (int step = 1; step <= steps; ++step) {
    const std::string name = fmt::format("step{:04}.safetensors", step);
    // The gradient and the value of each of twelve parameters.
    REQUIRE(SafetensorsFile(one / name).entries().size() == 2 * 12);
    largest = std::max(largest, largest_difference_of(one / name, other / name));
  }
  return largest;
}

void check_parallel_runs(const std::string& dtype, double tolerance) {
  // SGD without clipping: AdamW or clipping would hide gradients that are wrong by a factor.
  const Training training(
      {"--steps", "10", "--optimizer", "sgd", "--lr", "0.5", "--clip", "0", "--dtype", dtype});
  REQUIRE(training.run({"--dump", training.path("alone").string()}).exit_code == 0);
  Sample sample;
  for (const std::string strategy :
       {"naive", "flat", "overlap", "bucketed", "zero1_broadcast", "zero1", "zero2", "zero3"}) {
    for (const std::string ranks : {"2", "3", "4"}) {
      if (!sample.takes()) continue;
      CAPTURE(strategy);
      CAPTURE(ranks);
      const auto dump = training.path(strategy + ranks);
      const Outcome outcome = training.run(
          {"-n", ranks, "--parallel", strategy, "--bucket-mb", "0.001", "--dump", dump.string()});
      REQUIRE(outcome.exit_code == 0);
      CHECK(outcome.survivors == "");
      CHECK(largest_difference(training.path("alone"), dump, 10) < tolerance);
    }
  }
  const auto dump = training.path("threads");
  REQUIRE(training.run({"-n", "4", "--backend", "threads", "--dump", dump.string()}).exit_code ==
          0);
  CHECK(largest_difference(training.path("alone"), dump, 10) < tolerance);
}

}  // namespace

TEST_CASE("every gradient and parameter of ten steps equals that of one rank in fp64") {
  check_parallel_runs("fp64", 1e-12);
}

TEST_CASE("every gradient and parameter of ten steps equals that of one rank in fp32") {
  check_parallel_runs("fp32", 1e-5);
}

TEST_CASE("the header says that a BLAS leaves half of the processor unused") {
  if (training::vector_bits_here() < 256) {
    MESSAGE("SKIPPED: every kernel uses these vectors");
    return;
  }
  const Training training({"--steps", "1"});
  const Outcome outcome =
      training.run({}, {{"RINGSIDE_ONEDNN", "off"}, {"OPENBLAS_CORETYPE", "Nehalem"}});
  CHECK(contains(outcome.out,
                 "multiplies with its kernel Nehalem, whose vectors\n         have 128 bits"));
  CHECK(contains(outcome.out, ": unset OPENBLAS_CORETYPE\n"));
}

TEST_CASE("an OpenBLAS that does not know the processor is asked for a kernel that it has") {
  const std::string kernel = training::kernel_to_ask_for();
  if (kernel.empty()) {
    MESSAGE("SKIPPED: this BLAS knows the processor");
    return;
  }
  const Training training({"--steps", "1"});
  for (const char* ranks : {"1", "2"}) {
    const Outcome outcome = training.run({"-n", ranks});
    CHECK(outcome.exit_code == 0);
    CHECK_FALSE(contains(outcome.out, "multiplies with its kernel"));
  }
}

TEST_CASE("the same run gives the same dumps to the bit") {
  const Training training({"--steps", "3", "-n", "3"});
  for (const char* name : {"one", "two"})
    REQUIRE(training.run({"--dump", training.path(name).string()}).exit_code == 0);
  for (const char* step : {"step0001.safetensors", "step0003.safetensors"}) {
    CHECK((read_file(training.path("one") / step) == read_file(training.path("two") / step)));
  }
}

TEST_CASE("only rank 0 prints the header, the progress, the result and a sample") {
  const Training training({"--steps", "40", "--sample", "30", "--validate-every", "20"});
  const Outcome outcome = training.run({"-n", "2"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  CHECK(contains(outcome.out, "ranks    2 over shm, flat, 1 thread each\n"));
  CHECK(contains(outcome.out, "batch    12 sequences of 12 bytes, 6 on each rank; 40 steps\n"));
  CHECK(contains(outcome.out, "step  1/40  loss 5."));
  CHECK(contains(outcome.out, "step 40/40  loss "));
  CHECK(contains(outcome.out, "step 20/40  held-out text: "));
  CHECK(contains(outcome.out, "--- a sample of 30 bytes, temperature 0.8 ---\n"));
  CHECK_FALSE(contains(outcome.out, "\r"));  // no rewritten line without a terminal
  CHECK(std::count(outcome.out.begin(), outcome.out.end(), '\n') < 40);
  CHECK_FALSE(contains(outcome.out, "[1]"));
}

TEST_CASE("what a run prints fits 80 columns") {
  const Training training({});  // for its folder: this run reads the default corpus
  const auto outcome =
      run_program({ringside_binary, "train", "--steps", "1", "--batch", "1", "--sequence", "16",
                   "--threads", "1", "--save", training.path("model").string()},
                  {}, Seconds(60));
  CHECK(outcome.exit_code == 0);
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    CHECK((line.size() <= 80 || line.starts_with("step ")));  // shorter on a terminal
  }
}

TEST_CASE("samples on the way and at the end") {
  const Training training({"--steps", "6", "--sample", "12", "--sample-every", "2"});
  const Outcome outcome = training.run({"-n", "2"});
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out,
                 "\n--- a sample of 12 bytes before the first step, temperature 0.8 ---\n"));
  CHECK(contains(outcome.out, "\n--- a sample of 12 bytes after step 2, temperature 0.8 ---\n"));
  CHECK(contains(outcome.out, "\n--- a sample of 12 bytes after step 4, temperature 0.8 ---\n"));
  CHECK_FALSE(contains(outcome.out, "after step 6"));
  CHECK(contains(outcome.out, "\n--- a sample of 12 bytes, temperature 0.8 ---\n"));
  // The run is the same as without samples.
  const auto end = [](const std::string& text) { return text.substr(text.find("held out ")); };
  const Training silent({"--steps", "6", "--sample", "12"});
  CHECK(end(outcome.out) == end(silent.run({"-n", "2"}).out));
}

TEST_CASE("metrics are a JSON object for each step") {
  const Training training(
      {"--steps", "4", "--validate-every", "3", "--warmup", "2", "--lr", "0.01"});
  REQUIRE(training.run({"-n", "2", "--metrics", training.path("metrics").string()}).exit_code == 0);
  std::istringstream lines(read_file(training.path("metrics")));
  std::vector<Json> steps, validations;
  for (std::string line; std::getline(lines, line);) {
    const auto row = Json::parse(line);
    (row.contains("loss") ? steps : validations).push_back(row);
  }
  REQUIRE(steps.size() == 4);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto& row = steps[i];
    CHECK(row["step"] == i + 1);
    CHECK(row["bits_per_byte"].get<double>() ==
          doctest::Approx(row["loss"].get<double>() / std::log(2.0)));
    CHECK(row["tokens_per_second"].get<double>() ==
          doctest::Approx(144 / row["step_seconds"].get<double>()));
    CHECK(row["communication_seconds"].get<double>() > 0);
    CHECK(row["communication_seconds"].get<double>() < row["step_seconds"].get<double>());
    CHECK(row["gradient_norm"].get<double>() > 0);
  }
  CHECK(steps[0]["lr"].get<double>() == doctest::Approx(0.005));
  CHECK(steps[1]["lr"].get<double>() == doctest::Approx(0.01));
  REQUIRE(validations.size() == 2);  // after step 3, and at the end
  CHECK(validations[0]["step"] == 3);
  CHECK(validations[1]["validation_bits_per_byte"].get<double>() > 0);
}

TEST_CASE("errors are printed once and before ranks start") {
  const Training training({"-n", "4"});
  const auto refusal = [&](const Command& more) {
    const Outcome outcome = training.run(more);
    CHECK(outcome.exit_code != 0);
    CHECK(outcome.out == "");
    CHECK(outcome.survivors == "");
    return outcome.err;
  };
  CHECK(refusal({"--batch", "10"}) ==
        "ringside: a batch of 10 sequences does not divide by 4 ranks: choose a multiple of 4, so "
        "that every rank reads equally "
        "much\n");
  CHECK(refusal({"--data", training.path("nowhere").string()}) ==
        "ringside: there is no file or directory " + training.path("nowhere").string() + "\n");
  std::ofstream(training.path("empty")).close();
  CHECK(refusal({"--data", training.path("empty").string()}) ==
        "ringside: " + training.path("empty").string() +
            " is empty: there is nothing to learn from it\n");
  CHECK(
      contains(refusal({"--sequence", "100000"}),
               "ringside: a sequence of 100000 bytes needs 100001 bytes of text, but there are "));
  CHECK(refusal({"--sample-every", "2"}) ==
        "ringside: --sample-every needs the length of a sample: give it with --sample\nTry: "
        "ringside train --help\n");
  CHECK(refusal({"--heads", "3"}) ==
        "ringside: d_model 16 does not divide into 3 heads: choose a width that is a multiple of "
        "the number of heads\n");
  CHECK(refusal({"--parallel", "single"}) ==
        "ringside: --parallel single trains on one rank, not on 4: choose another strategy\nTry: "
        "ringside train --help\n");
  CHECK(refusal({"--metrics", training.path("no/file").string()}) ==
        "ringside: cannot write metrics to " + training.path("no/file").string() +
            ": No such file or directory\n");
  CHECK(refusal({"--init", training.path("no").string()}) ==
        "ringside: --init brings the model's sizes with it: leave out --model and the sizes\nTry: "
        "ringside train --help\n");
  CHECK(refusal({"--sample", "-1"}) ==
        "ringside: --sample: a number of at least 0 is expected, not -1\nTry: ringside train "
        "--help\n");
}

TEST_CASE(
    "the same run on two ranks with two threads each gives the same bits with every strategy") {
  for (const std::string strategy : {"naive", "flat", "overlap", "bucketed"}) {
    CAPTURE(strategy);
    // Wide enough that matrices, rows and heads are divided among the threads.
    const Training training({"--steps", "2",         "-n",     "2",           "--parallel",
                             strategy,  "--threads", "2",      "--d-model",   "128",
                             "--heads", "4",         "--d-ff", "256",         "--sequence",
                             "64",      "--batch",   "8",      "--bucket-mb", "0.2"});
    std::vector<std::string> bits[2];
    for (int run = 0; run < 2; ++run) {
      const auto dump = training.path(fmt::format("{}{}", strategy, run));
      REQUIRE(training.run({"--dump", dump.string()}, {{"OMP_WAIT_POLICY", "passive"}}).exit_code ==
              0);
      for (int step = 1; step <= 2; ++step)
        bits[run].push_back(read_file(dump / fmt::format("step{:04}.safetensors", step)));
    }
    CHECK((bits[0] == bits[1]));
  }
}

TEST_CASE("bf16 learns as fp32 does with every strategy and is saved as bf16") {
  const auto losses = [](const Command& options) {
    const Training training({"--steps", "60", "--lr", "0.01", "--layers", "2"});
    Command all = options;
    all.insert(all.end(), {"--metrics", training.path("m").string(), "--save",
                           training.path("model").string()});
    REQUIRE(training.run(all).exit_code == 0);
    SafetensorsFile model(training.path("model") / "model.safetensors");
    const bool is_bf16 = model.entry("model.norm.weight").type == transformer::StoredType::bf16;
    CHECK(is_bf16 == (options[1] == "bf16"));
    if (is_bf16) CHECK(contains(read_file(training.path("model") / "config.json"), "\"bfloat16\""));
    double last = 0;
    for (const auto& row : rows_without_times(training.path("m"))) {
      if (row.contains("loss")) last = row["loss"];
    }
    return last;
  };
  const double fp32 = losses({"--dtype", "fp32"});
  CHECK(fp32 < 3);
  CHECK(losses({"--dtype", "bf16"}) == doctest::Approx(fp32).epsilon(0.05));
  for (const char* strategy : {"naive", "flat", "overlap", "bucketed"})
    CHECK(losses({"--dtype", "bf16", "-n", "2", "--parallel", strategy}) ==
          doctest::Approx(fp32).epsilon(0.05));
}

TEST_CASE("a model that does not fit is refused before memory is allocated") {
  const Training training({});
  const Outcome outcome = training.run({"-n", "2", "--d-model", "1600", "--layers", "48", "--heads",
                                        "25", "--d-ff", "6400", "--memory-limit", "20"});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.out == "");
  CHECK(outcome.err ==
        "ringside: this needs about 79 GB of memory (2 ranks of 39 GB: parameters 7.87 GB, "
        "gradients 16 GB, optimizer 16 GB, activations "
        "0.45 GB), but 20 GB are available: choose a smaller model or batch, fewer ranks on this "
        "machine, or --accumulate and "
        "--recompute full for fewer activations; --memory-limit 0 tries it anyway\n");
  CHECK(outcome.seconds < 5);
  // The copy of a checkpoint that is written in the background is there once: 4 + 8 bytes of each
  // parameter.
  const Outcome saves = training.run({"-n", "2", "--d-model", "1600", "--layers", "48", "--heads",
                                      "25", "--d-ff", "6400", "--memory-limit", "20", "--save",
                                      training.path("saved").string(), "--save-every", "10"});
  CHECK(contains(saves.err, "ringside: this needs about 102 GB of memory (2 ranks of 39 GB: "));
  CHECK(contains(saves.err, "; 24 GB for the copy that --save-every writes), but 20 GB are "));
  // Numbers that are equal when they are rounded are shown with more digits.
  const Outcome nearly = training.run({"-n", "2", "--d-model", "1600", "--layers", "48", "--heads",
                                       "25", "--d-ff", "6400", "--memory-limit", "78.6"});
  CHECK(contains(nearly.err, "needs about 78.68 GB of memory"));
  CHECK(contains(nearly.err, "but 78.60 GB are available"));
  CHECK(contains(training.run({"--layers", "1000000000", "--d-model", "1000000000"}).err,
                 "ringside: this needs about "));
  CHECK(training.run({"--steps", "1", "--memory-limit", "0.000001"}).exit_code == 1);
  CHECK(training.run({"--steps", "1", "--memory-limit", "0"}).exit_code == 0);
}

TEST_CASE("a run ends silently on every rank when nobody reads its output") {
  const Training training({"--steps", "100000"});
  const std::string text = training.path("text.txt").string();
  for (const std::string how : {"-n 1", "-n 3", "-n 2 --backend tcp", "-n 2 --backend threads"}) {
    for (const std::string before : {"", "trap '' PIPE; "}) {  // the parent may ignore SIGPIPE
      CAPTURE(how);
      CAPTURE(before);
      const std::string script =
          before + "\"$0\" train --data '" + text +
          "' --d-model 16 --layers 1 --heads 2 --d-ff 20 --sequence 12 --batch 12 --threads 1 "
          "--steps 100000 --eval-every 1 --eval-batches 1 " +
          how + " | head -n 3; echo \"${PIPESTATUS[0]}\"";
      const Outcome outcome = run_program({"bash", "-c", script, ringside_binary});
      CHECK(outcome.err == "");
      CHECK(contains(outcome.out, "\n141\n"));
      CHECK(outcome.survivors == "");
      CHECK(outcome.seconds < 10);
    }
  }
}

TEST_CASE("a run that diverges reports it") {
  const Training training({"--steps", "20", "--optimizer", "sgd", "--lr", "1e9", "--clip", "0"});
  const Outcome outcome = training.run({"-n", "2"});
  CHECK(outcome.exit_code == 1);
  CHECK(contains(outcome.err, ": training has diverged; try a lower learning rate"));
  CHECK(outcome.survivors == "");
}

TEST_CASE("train --backend threads runs all ranks in one process and refuses an outer launcher") {
  const Training training({"--steps", "2", "--backend", "threads"});
  const Outcome outcome = training.run({"-n", "3"});
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "ranks    3 over threads, flat, 1 thread each\n"));
  const Outcome inside = training.run({}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  CHECK(inside.exit_code == 2);
  CHECK(contains(inside.err, "--backend threads keeps all ranks in one process"));
}

TEST_CASE("with sharded parameters all ranks validate, save and generate a sample together") {
  const Training training({"--steps", "4", "--dtype", "fp64", "--validate-every", "2", "--sample",
                           "20", "--temperature", "0"});
  // 64 windows of held-out text, one at a time: the third rank has one more than the others.
  const Outcome alone = training.run(),
                sharded = training.run({"-n", "3", "--parallel", "zero3", "--save",
                                        training.path("saved").string(), "--save-every", "1",
                                        "--recompute", "full", "--accumulate", "4"});
  CAPTURE(sharded.err);
  REQUIRE(sharded.exit_code == 0);
  const auto after = [](const std::string& text, const std::string& start) {
    return text.substr(std::min(text.find(start), text.size()));
  };
  CHECK(after(sharded.out, "--- a sample of") == after(alone.out, "--- a sample of"));
  CHECK(after(alone.out, "--- a sample of").size() > 40);
  CHECK(after(sharded.out, "\nheld out ").substr(0, 20) ==
        after(alone.out, "\nheld out ").substr(0, 20));
}

TEST_CASE("idle threads sleep on every rank unless the user has chosen") {
  const Training training({"-n", "2", "--steps", "1000000"});
  const auto policies_of = [&](const Variables& variables) {
    Program program(training.command(), variables);
    REQUIRE(program.wait_for("bits/byte"));
    std::vector<std::string> policies;
    for (const pid_t pid : program.processes()) {
      const std::string environment = read_file(fmt::format("/proc/{}/environ", pid));
      const std::size_t found = environment.find("OMP_WAIT_POLICY=");
      policies.push_back(found == std::string::npos ? "" : environment.c_str() + found + 16);
    }
    return policies;
  };
  for (const std::string& policy : policies_of({})) CHECK(policy == "passive");
  for (const std::string& policy : policies_of({{"OMP_WAIT_POLICY", "active"}}))
    CHECK(policy == "active");
  for (const std::string& policy : policies_of({{"GOMP_SPINCOUNT", "100"}})) CHECK(policy == "");
}

TEST_CASE("under a launcher one rank says what is wrong with the command or its files") {
  const auto error_of = [](Command train) {
    Command command = {ringside_binary, "launch", "-n", "3", "--", ringside_binary, "train"};
    command.insert(command.end(), train.begin(), train.end());
    return run_program(command).err;
  };
  const auto count = [](const std::string& text, const std::string& part) {
    int found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++found;
    return found;
  };
  const std::string option = error_of({"--stps", "3"});
  CAPTURE(option);
  CHECK(count(option, "there is no option --stps (did you mean --steps?)") == 1);
  CHECK(contains(option, "[0] ringside: "));
  const std::string file = error_of({"--init", "/nowhere"});
  CAPTURE(file);
  CHECK(count(file, "cannot read /nowhere/config.json") == 1);
}

}  // namespace ringside::cli
