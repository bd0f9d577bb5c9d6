// `ringside train --data NAME.u16`: runs whose tokens are not bytes.

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "tests/cli/commands/train/training.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/transformer/encoded_text.hpp"

namespace ringside::cli {
namespace {

using namespace testing;
using ringside::tests::PairTokenizer;

// The training's text as tokens, in a file beside it.
std::string encoded(const Training& training, int vocabulary, const char* name = "text.u16") {
  const std::string text = read_file(training.path("text.txt"));
  PairTokenizer(vocabulary)
      .write(training.path(name), transformer::Bytes(text.begin(), text.end()));
  return training.path(name).string();
}

}  // namespace

TEST_CASE("a run on tokens is the same on one, two and three ranks") {
  // fp64 and a tolerance, because the sums of gradients are rounded in a different order.
  const Training training({"--steps", "6", "--dtype", "fp64", "--warmup", "2", "--sample", "20"});
  const std::string tokens = encoded(training, 280);
  std::vector<Json> first;
  for (const std::string ranks : {"1", "2", "3"}) {
    const std::string metrics = training.path("metrics" + ranks).string(),
                      folder = training.path("model" + ranks).string();
    const Outcome outcome =
        training.run_on(tokens, {"-n", ranks, "--metrics", metrics, "--save", folder});
    CHECK(outcome.err == "");
    REQUIRE(outcome.exit_code == 0);
    CHECK(contains(outcome.out, "vocabulary 280\n"));
    CHECK(contains(outcome.out, "tokens   280 of a tokenizer; the text is "));
    CHECK(contains(outcome.out, "batch    12 sequences of 12 tokens, "));
    CHECK(contains(outcome.out,
                   "--- a sample of 20 tokens, temperature 0.8; their text: ringside tokenize "
                   "--decode ---\n"));
    CHECK(contains(
        outcome.out,
        "saved    " + folder +
            "\n         config.json, model.safetensors, tokenizer.json for transformers,\n"));
    CHECK(read_file(folder + "/tokenizer.json") == PairTokenizer(280).json());
    const auto rows = rows_without_times(metrics);
    if (first.empty()) first = rows;
    REQUIRE(rows.size() == 7);  // with the validation at the end
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (const auto& [key, value] : rows[i].items()) {
        CHECK(value.get<double>() == doctest::Approx(first[i][key].get<double>()).epsilon(1e-9));
      }
    }
  }
  // A token of this text has more than one byte, so a byte costs less than log2(280) bits.
  CHECK(first[0]["loss"].get<double>() == doctest::Approx(std::log(280)).epsilon(0.05));
  CHECK(first[0]["bits_per_byte"].get<double>() < std::log2(280) / 1.05);
  CHECK(first[0]["bits_per_byte"].get<double>() > 1);
  CHECK(first[6]["validation_bits_per_byte"].get<double>() < std::log2(280));
}

TEST_CASE("a run on tokens resumes to the bit and generate and eval use its vocabulary") {
  const Training training({"--warmup", "4", "--lr", "0.01", "-n", "2"});
  const std::string tokens = encoded(training, 280), whole = training.path("whole").string(),
                    halves = training.path("halves").string();
  REQUIRE(training.run_on(tokens, {"--steps", "20", "--save", whole}).exit_code == 0);
  REQUIRE(
      training.run_on(tokens, {"--steps", "20", "--save", halves, "--stop-at", "10"}).exit_code ==
      0);
  const auto resume = [&](const Command& more) {
    Command command = {ringside_binary, "train", "--threads", "1", "-n", "2", "--resume", halves};
    command.insert(command.end(), more.begin(), more.end());
    return run_program(command, {}, Seconds(30));
  };
  const std::string other = encoded(training, 270, "other.u16"),
                    text = training.path("text.txt").string(),
                    encode = "ringside tokenize --tokenizer " + halves;
  CHECK(resume({"--data", other}).err ==
        "ringside: the run in " + halves + " was trained with another tokenizer than that of " +
            other + ": encode the text with its own (" + encode + " --out NAME.u16)\n");
  CHECK(resume({"--data", text}).err ==
        "ringside: the run in " + halves +
            " was trained with a tokenizer, and its text must be encoded: " + encode + " --data " +
            text + " --out NAME.u16, then add --data NAME.u16\n");
  const Outcome outcome = resume({});  // the checkpoint names its data
  CHECK(outcome.err == "");
  CHECK(outcome.exit_code == 0);
  CHECK(same_model(whole, halves));

  const auto generated = [&](const std::string& ids, const std::string& input = "") {
    return run_program({"sh", "-c",
                        "printf '" + input + "' | " + std::string(ringside_binary) +
                            " generate --init " + halves + " --tokens 3 --prompt-tokens " + ids});
  };
  const Outcome ids = generated("97,270");
  CHECK(ids.err == "");
  CHECK(ids.out.starts_with("97,270,"));
  CHECK(std::count(ids.out.begin(), ids.out.end(), ',') == 4);
  CHECK(generated("-", "97, 270\\n").out == ids.out);
  CHECK(generated("280").err ==
        "ringside: the beginning has the token 280, but the model's vocabulary is 0 to 279\n");
  for (const char* wrong : {"a", "1,99999999999", "1.5", ","})
    CHECK(contains(generated(wrong).err, "--prompt-tokens needs ids with commas between them, "));

  const std::string figures = training.path("eval.json").string();
  const Outcome evaluated = run_program(
      {ringside_binary, "eval", "--init", halves, "--tokens", tokens, "--json", figures});
  CHECK(evaluated.err == "");
  CHECK(contains(evaluated.out, " bits per byte: "));
  const auto written = Json::parse(read_file(figures));
  const auto ratio = written["loss"].get<double>() / std::log(2.0) /
                     written["bits_per_byte"].get<double>();  // bytes per token
  CHECK(ratio > 1.05);
  CHECK(ratio < 2);

  // A checkpoint of an older version.
  std::filesystem::remove(training.path("halves") / "vocabulary.json");
  CHECK(contains(
      run_program({ringside_binary, "eval", "--init", halves, "--tokens", tokens}).out,
      "no bits per byte: " + halves + "/vocabulary.json is missing: `" + encode + " --save "));
  std::filesystem::remove(training.path("halves") / "tokenizer.json");
  CHECK(resume({"--steps", "22"}).exit_code == 0);  // its tokens have the tokenizer
  CHECK(std::filesystem::exists(training.path("halves") / "tokenizer.json"));
  CHECK(std::filesystem::exists(training.path("halves") / "vocabulary.json"));
}

TEST_CASE("a run goes on with the tokenizer of the checkpoint that it starts from") {
  const Training training({"--steps", "2"});
  const std::string tokens = encoded(training, 280), folder = training.path("model").string(),
                    text = training.path("text.txt").string(),
                    encode = "ringside tokenize --tokenizer " + folder;
  REQUIRE(training.run_on(tokens, {"--save", folder}).exit_code == 0);
  const auto start = [&](const std::string& data, const Command& more = {}) {
    Command command = {ringside_binary, "train", "--init",    folder, "--data", data,
                       "--steps",       "2",     "--threads", "1"};
    command.insert(command.end(), more.begin(), more.end());
    return run_program(command, {}, Seconds(30));
  };
  CHECK(start(text).err == "ringside: " + folder +
                               " has a tokenizer, so its text must be encoded: type " + encode +
                               " --data " + text + " --out NAME.u16, then add --data NAME.u16\n");
  const std::string other = encoded(training, 270, "other.u16");
  CHECK(start(other).err == "ringside: " + folder + "/tokenizer.json is not the tokenizer of " +
                                other + ": encode the text with it (" + encode +
                                " --out NAME.u16), or move it out of the folder\n");
  const std::string again = training.path("again").string();
  CHECK(start(tokens, {"--save", again}).exit_code == 0);
  CHECK(read_file(again + "/tokenizer.json") == read_file(folder + "/tokenizer.json"));
}

TEST_CASE("tokens that do not fit are refused before ranks start") {
  const Training training({"--steps", "2", "-n", "3"});
  const std::string tokens = encoded(training, 280), folder = training.path("model").string();
  PairTokenizer(280).vocabulary().save(training.path(""));
  const std::string file = training.path("tokenizer.json").string();
  const auto refusal = [&](const Outcome& outcome) {
    CHECK(outcome.exit_code == 1);
    CHECK(outcome.out == "");
    return outcome.err;
  };
  CHECK(refusal(training.run_on(tokens, {"--vocabulary", "279"})) ==
        "ringside: the tokenizer of " + tokens +
            " has 280 tokens, but the model's vocabulary is 279: take another tokenizer, or a "
            "model with --vocabulary 280\n");
  CHECK(refusal(training.run_on("/nowhere.u16", {}))
            .starts_with("ringside: /nowhere.corpus.json is missing, which says what the tokens in "
                         "/nowhere.u16 "));
  CHECK(
      refusal(training.run({"--vocabulary", "255"})) ==
      "ringside: a token here is a byte, so the vocabulary must be at least 256, but it is 255\n");
  CHECK(contains(refusal(training.run({"--save", training.path("").string()})),
                 "ringside: " + file + " exists, but the tokens of this run are bytes: "));
  const std::string other = encoded(training, 270, "other.u16");
  CHECK(contains(refusal(training.run_on(other, {"--save", training.path("").string()})),
                 "ringside: " + file + " is not the tokenizer of this run (that of " + other));
  CHECK(
      contains(refusal(training.run_on(tokens, {"--sequence", "30000"})),
               "ringside: a sequence of 30000 tokens needs 30001 tokens of text, but there are "));
  CHECK(training.run_on(tokens, {"--vocabulary", "310"}).exit_code == 0);
  const Outcome old = training.run({"--tokenizer", "t/"});
  CHECK(old.exit_code == 2);
  CHECK(contains(old.err,
                 "ringside: train reads text that is encoded already: type `ringside tokenize "
                 "--tokenizer t/ --data TEXT --out NAME.u16`, and then `ringside train --data "
                 "NAME.u16`\n"));
}

}  // namespace ringside::cli
