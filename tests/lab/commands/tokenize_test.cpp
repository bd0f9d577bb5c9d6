// `ringside tokenize`: training, encoding and decoding on the command line, and its errors.

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "tests/transformer/tokenizer/reference.hpp"
#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/data/token_file.hpp"
#include "transformer/model.hpp"

using namespace ringside::testing;
using ringside::Json;

namespace {

Outcome tokenize(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {ringside_binary, "tokenize"});
  return run_program(arguments);
}

const std::string gpt2 = reference("gpt2.json");

void check_usage_error(const std::vector<std::string>& arguments, const std::string& sentence) {
  const Outcome outcome = tokenize(arguments);
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.err == fmt::format("ringside: {}\nTry: ringside tokenize --help\n", sentence));
}

}  // namespace

TEST_CASE("tokenize prints ids and their bytes") {
  const Outcome outcome = tokenize({"--tokenizer", gpt2, "the ring\n\xff<|endoftext|>"});
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "  \" ring\"\n"));
  CHECK(contains(outcome.out, "  \"\\n\"\n"));
  CHECK(contains(outcome.out, "  \"\\xff\"\n"));
  CHECK(contains(outcome.out, "       0  \"<|endoftext|>\"\n"));
  CHECK(contains(outcome.out, " tokens for 23 bytes, "));
}

TEST_CASE("tokenize decodes what it encoded") {
  TemporaryDirectory directory;
  const std::string figures = (directory.path() / "figures.json").string();
  const std::string text = "It's the\tring, Größe 12345 🙂\n";
  CHECK(tokenize({"--tokenizer", gpt2, "--json", figures, text}).exit_code == 0);
  const Json written = Json::parse(read_file(figures));
  CHECK(written["bytes"] == text.size());
  CHECK(written["tokens"] == written["ids"].size());
  CHECK(written["bytes_per_token"].get<double>() ==
        doctest::Approx(static_cast<double>(text.size()) / written["ids"].size()));
  const std::string ids =
      fmt::format("{}", fmt::join(written["ids"].get<std::vector<std::int32_t>>(), ","));
  CHECK(tokenize({"--tokenizer", gpt2, "--decode", ids}).out == text);
  CHECK(
      tokenize({"--tokenizer", gpt2, "--decode", fmt::format("0,{}", ids), "--skip-special"}).out ==
      text);
}

TEST_CASE("tokenize writes files of ids that eval reads") {
  TemporaryDirectory directory;
  const std::string text =
      directory.write("text.txt", "the ring, the ranks\nand \xff the rest").string();
  std::vector<std::vector<std::int32_t>> written;
  for (const char* name : {"ids.u16", "ids.u32", "ids.json"}) {
    const std::string out = (directory.path() / name).string();
    const Outcome outcome = tokenize({"--tokenizer", gpt2, "--file", text, "--out", out});
    CHECK(outcome.err == "");
    CHECK(contains(outcome.out, " bytes per token; "));
    written.push_back(ringside::transformer::read_tokens(out, 1000).at(0));
  }
  CHECK(written[0].size() > 5);
  CHECK(written[1] == written[0]);
  CHECK(written[2] == written[0]);
  check_usage_error(
      {"--tokenizer", gpt2, "--file", text, "--out", "ids.bin"},
      "the name of ids.bin must end in .u16, .u32 or .json, which determines the format");
}

TEST_CASE("tokenize learns what Hugging Face's trainer learns") {
  TemporaryDirectory directory;
  const std::string folder = (directory.path() / "tokenizer").string(),
                    figures = (directory.path() / "figures.json").string();
  const Outcome outcome = tokenize({"--train", "420", "--data", reference("learn_from.txt"),
                                    "--save", folder, "--json", figures});
  CHECK(outcome.err == "");
  CHECK(contains(outcome.out, fmt::format("saved    {}/tokenizer.json\n", folder)));
  CHECK(read_file(folder + "/tokenizer.json") == read_file(gpt2));
  CHECK(Json::parse(read_file(figures))["files"] == 1);
  CHECK(tokenize({"--tokenizer", folder, "the"}).exit_code == 0);
}

TEST_CASE("tokenize adds the tokenizer's tokens around a text unless --plain is given") {
  const std::string llama3 = reference("llama3.json");
  CHECK(tokenize({"--tokenizer", llama3, "a"}).out.starts_with("       1  \"<|begin|>\"\n"));
  CHECK_FALSE(contains(tokenize({"--tokenizer", llama3, "--plain", "a"}).out, "begin"));
}

TEST_CASE("tokenize reports wrong arguments and files") {
  check_usage_error({"text"},
                    "choose a tokenizer (--tokenizer FILE), or train one (--train N --save DIR)");
  check_usage_error({"--tokenizer", gpt2}, "choose one task: a text, --file FILE or --decode IDS");
  check_usage_error({"--tokenizer", gpt2, "text", "--decode", "1"},
                    "choose one task: a text, --file FILE or --decode IDS");
  check_usage_error({"--tokenizer", gpt2, "--save", "x", "text"},
                    "--data and --save belong to --train");
  check_usage_error({"--train", "300"},
                    "--train needs a place for the tokenizer: name it with --save");
  check_usage_error(
      {"--train", "300", "--save", "x", "text"},
      "--train makes a tokenizer: leave out --tokenizer, the text, --file and --decode");
  CHECK(tokenize({"--train", "100", "--save", "x", "--data", reference("learn_from.txt")}).err ==
        "ringside: a vocabulary of 100 has no room for the 256 bytes and 1 special token: it "
        "needs at least 257\n");
  CHECK(contains(tokenize({"--tokenizer", gpt2, "--decode", "99999"}).err,
                 "there is no token with the id 99999: the tokenizer has "));
  CHECK(tokenize({"--tokenizer", "/nowhere.json", "x"}).err ==
        "ringside: cannot read the tokenizer /nowhere.json: No such file or directory\n");
}

TEST_CASE("generate uses the tokenizer in the checkpoint's folder") {
  TemporaryDirectory directory;
  ringside::transformer::Config config;
  config.vocabulary = 500;  // more than the tokenizer has: the others are printed as ?
  config.d_model = 8;
  config.layers = 1;
  config.heads = config.kv_heads = 2;
  config.d_ff = 8;
  config.sequence = 64;
  ringside::transformer::save_checkpoint(directory.path(), ringside::transformer::Model(config));
  const std::vector<std::string> generate = {
      ringside_binary, "generate",         "--init",   directory.path().string(),
      "--prompt",      "the ring – 12345", "--tokens", "20"};
  std::filesystem::copy_file(gpt2, directory.path() / "tokenizer.json");
  const Outcome outcome = run_program(generate);
  CHECK(outcome.err == "");
  CHECK(outcome.out.starts_with("the ring – 12345"));
  CHECK(outcome.out.size() > 30);

  config.vocabulary = 256;
  ringside::transformer::save_checkpoint(directory.path(), ringside::transformer::Model(config));
  CHECK(contains(run_program(generate).err,
                 ", but the model's vocabulary is 0 to 255: it belongs to another model"));
}
