// `ringside train --tokenizer`: runs whose tokens are not bytes.

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "tests/cli/commands/train/training.hpp"
#include "tests/cli/run_program.hpp"

namespace ringside::cli {
namespace {

using namespace testing;

// Trains a tokenizer on the training's text and saves it in a folder beside the text.
std::string trained_tokenizer(const Training& training, int vocabulary,
                              const char* folder = "tokenizer") {
  const std::string path = training.path(folder).string();
  REQUIRE(run_program({ringside_binary, "tokenize", "--train", std::to_string(vocabulary), "--data",
                       training.path("text.txt").string(), "--save", path})
              .exit_code == 0);
  return path;
}

}  // namespace

TEST_CASE("a run with a tokenizer is the same on one, two and three ranks") {
  // fp64 and a tolerance, because the sums of gradients are rounded in a different order.
  const Training training({"--steps", "6", "--dtype", "fp64", "--warmup", "2", "--sample", "20"});
  const std::string tokenizer = trained_tokenizer(training, 300);
  std::vector<Json> first;
  for (const std::string ranks : {"1", "2", "3"}) {
    const std::string metrics = training.path("metrics" + ranks).string(),
                      folder = training.path("model" + ranks).string();
    const Outcome outcome = training.run(
        {"-n", ranks, "--tokenizer", tokenizer, "--metrics", metrics, "--save", folder});
    CHECK(outcome.err == "");
    REQUIRE(outcome.exit_code == 0);
    CHECK(contains(outcome.out, "vocabulary 300\n"));
    CHECK(contains(outcome.out,
                   "tokens   " + tokenizer + "/tokenizer.json: 300 of them; the text is "));
    CHECK(contains(outcome.out, "batch    12 sequences of 12 tokens, "));
    CHECK(contains(outcome.out, "--- a sample of 20 tokens, temperature 0.8 ---\n"));
    CHECK(contains(
        outcome.out,
        "saved    " + folder +
            "\n         config.json, model.safetensors, tokenizer.json for transformers,\n"));
    CHECK(read_file(folder + "/tokenizer.json") == read_file(tokenizer + "/tokenizer.json"));
    const auto rows = rows_without_times(metrics);
    if (first.empty()) first = rows;
    REQUIRE(rows.size() == 7);  // with the validation at the end
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (const auto& [key, value] : rows[i].items()) {
        CHECK(value.get<double>() == doctest::Approx(first[i][key].get<double>()).epsilon(1e-9));
      }
    }
  }
  // A token of this text has more than two bytes, so a byte costs less than log2(300) / 2 bits.
  CHECK(first[0]["loss"].get<double>() == doctest::Approx(std::log(300)).epsilon(0.05));
  CHECK(first[0]["bits_per_byte"].get<double>() < std::log2(300) / 2);
  CHECK(first[0]["bits_per_byte"].get<double>() > 1);
  CHECK(first[6]["validation_bits_per_byte"].get<double>() < std::log2(300) / 2);
}

TEST_CASE("a run with a tokenizer resumes to the bit and generate and eval use the tokenizer") {
  const Training training({"--warmup", "4", "--lr", "0.01", "-n", "2"});
  const std::string tokenizer = trained_tokenizer(training, 300),
                    whole = training.path("whole").string(),
                    halves = training.path("halves").string();
  REQUIRE(training.run({"--steps", "20", "--tokenizer", tokenizer, "--save", whole}).exit_code ==
          0);
  REQUIRE(
      training.run({"--steps", "20", "--tokenizer", tokenizer, "--save", halves, "--stop-at", "10"})
          .exit_code == 0);
  const auto resume = [&](const Command& more) {
    Command command = {ringside_binary, "train", "--data", training.path("text.txt").string(),
                       "--threads",     "1",     "-n",     "2",
                       "--resume",      halves};
    command.insert(command.end(), more.begin(), more.end());
    return run_program(command, {}, Seconds(30));
  };
  const std::string other = trained_tokenizer(training, 290, "other");
  CHECK(resume({"--tokenizer", other}).err ==
        "ringside: the run in " + halves +
            " was trained with another tokenizer: give the same one with --tokenizer, or leave out "
            "--tokenizer if its own tokenizer.json still exists\n");
  const Outcome outcome = resume({});  // the folder has the tokenizer
  CHECK(outcome.err == "");
  CHECK(outcome.exit_code == 0);
  CHECK(same_model(whole, halves));

  const Outcome text = run_program(
      {ringside_binary, "generate", "--init", halves, "--prompt", "line 4", "--tokens", "9"});
  CHECK(text.err == "");
  CHECK(text.out.starts_with("line 4"));

  const std::string ids = training.path("ids.u16").string(),
                    figures = training.path("eval.json").string();
  REQUIRE(run_program({ringside_binary, "tokenize", "--tokenizer", tokenizer, "--file",
                       training.path("text.txt").string(), "--out", ids})
              .exit_code == 0);
  const Outcome evaluated =
      run_program({ringside_binary, "eval", "--init", halves, "--tokens", ids, "--json", figures});
  CHECK(evaluated.err == "");
  CHECK(contains(evaluated.out, " bits per byte: "));
  const auto written = Json::parse(read_file(figures));
  const auto ratio = written["loss"].get<double>() / std::log(2.0) /
                     written["bits_per_byte"].get<double>();  // bytes per token
  CHECK(ratio > 2);
  CHECK(ratio < 12);

  std::filesystem::remove(training.path("halves") / "tokenizer.json");
  CHECK(resume({"--steps", "22"}).err ==
        "ringside: the run in " + halves +
            " was trained with a tokenizer, but its tokenizer.json is missing: give the same "
            "tokenizer with --tokenizer\n");
  CHECK(resume({"--steps", "22", "--tokenizer", tokenizer}).exit_code == 0);
}

TEST_CASE("a tokenizer that does not fit is refused before ranks start") {
  const Training training({"--steps", "2", "-n", "3"});
  const std::string tokenizer = trained_tokenizer(training, 300),
                    file = tokenizer + "/tokenizer.json";
  const auto refusal = [&](const Command& more) {
    const Outcome outcome = training.run(more);
    CHECK(outcome.exit_code == 1);
    CHECK(outcome.out == "");
    return outcome.err;
  };
  CHECK(refusal({"--tokenizer", tokenizer, "--vocabulary", "299"}) ==
        "ringside: the tokenizer " + file +
            " has 300 tokens, but the model's vocabulary is 299: take another tokenizer, or a "
            "model with --vocabulary 300\n");
  CHECK(refusal({"--tokenizer", "/nowhere.json"}) ==
        "ringside: cannot read the tokenizer /nowhere.json: No such file or directory\n");
  CHECK(
      refusal({"--vocabulary", "255"}) ==
      "ringside: a token here is a byte, so the vocabulary must be at least 256, but it is 255\n");
  CHECK(contains(refusal({"--save", tokenizer}),
                 "ringside: " + file + " exists, but the tokens of this run are bytes: "));
  const std::string other = trained_tokenizer(training, 290, "other");
  CHECK(contains(
      refusal({"--save", tokenizer, "--tokenizer", other}),
      "ringside: " + file + " is not the tokenizer of this run (" + other + "/tokenizer.json): "));
  CHECK(contains(refusal({"--tokenizer", tokenizer, "--sequence", "7000"}),  // of 20000 bytes
                 "ringside: a sequence of 7000 tokens needs 7001 tokens of text, but there are "));
  CHECK(training.run({"--tokenizer", tokenizer, "--vocabulary", "310"}).exit_code == 0);
}

}  // namespace ringside::cli
