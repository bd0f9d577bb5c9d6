#include "transformer/tokenizer/bpe_trainer.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "tests/transformer/tokenizer/reference.hpp"
#include "transformer/tokenizer/tokenizer_file.hpp"

using namespace ringside;
using namespace ringside::transformer;
using namespace ringside::testing;

namespace {

std::string refusal(const BpeTrainerOptions& options) {
  try {
    train_bpe("some text", options);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("what is learnt is what Hugging Face's trainer learns, to the letter of the file") {
  const Tokenizer tokenizer =
      train_bpe(read_file(reference("learn_from.txt")), {.vocabulary = 420});
  CHECK(tokenizer_json(tokenizer) == read_file(reference("gpt2.json")));
}

TEST_CASE("the same with words cut by another expression") {
  const auto expected = nlohmann::json::parse(read_file(reference("llama3.json")));
  const std::string expression = expected["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
  const Tokenizer tokenizer = train_bpe(read_file(reference("learn_from.txt")),
                                        {.vocabulary = 400,
                                         .special_tokens = {"<|endoftext|>", "<|begin|>"},
                                         .expression = expression});
  const auto learnt = nlohmann::json::parse(tokenizer_json(tokenizer));
  CHECK(learnt["model"]["vocab"] == expected["model"]["vocab"]);
  CHECK(learnt["model"]["merges"] == expected["model"]["merges"]);
}

TEST_CASE("the most frequent pair comes first and of equals the one with the smaller ids") {
  const Tokenizer tokenizer = train_bpe(
      "low low low low low lower lower newest newest newest newest newest newest widest widest "
      "widest",
      {.vocabulary = 256 + 6, .special_tokens = {}});
  const auto merges = nlohmann::json::parse(tokenizer_json(tokenizer))["model"]["merges"];
  // e s and s t come 9 times each; e is the smaller id. Then es t 9, Ġ n and the pairs of "newest"
  // 6 ...
  CHECK(merges[0] == nlohmann::json({"e", "s"}));
  CHECK(merges[1] == nlohmann::json({"es", "t"}));
  CHECK(merges.size() == 6);
}

TEST_CASE("pairs that are too rare are not merged") {
  CHECK(train_bpe("ab ab", {.vocabulary = 1000, .special_tokens = {}}).vocabulary() ==
        257);  // "ab"; " ab" comes once
  CHECK(train_bpe("ab ab", {.vocabulary = 1000, .min_frequency = 3, .special_tokens = {}})
            .vocabulary() == 256);
  CHECK(train_bpe("ab ab", {.vocabulary = 1000, .min_frequency = 1, .special_tokens = {}})
            .vocabulary() == 258);
  CHECK(train_bpe("", {.vocabulary = 1000}).vocabulary() == 257);
}

TEST_CASE("any bytes can be learnt from") {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += static_cast<char>(i * 7 % 256);
  const Tokenizer tokenizer = train_bpe(text, {.vocabulary = 300});
  CHECK(tokenizer.vocabulary() == 300);
  CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  CHECK(tokenizer.encode(text).size() < text.size());
}

TEST_CASE("what cannot be learnt is refused") {
  CHECK(refusal({.vocabulary = 256}) ==
        "a vocabulary of 256 has no room for the 256 bytes and 1 special token: it takes 257");
  CHECK(refusal({.special_tokens = {"a", "<x>", "<x>"}}) ==
        "the special token \"<x>\" is named twice");
  CHECK(refusal({.special_tokens = {""}}) == "a special token is empty");
  CHECK(refusal({.expression = "\\w+"}) ==
        "the expression \\w+ has \\w, which Ringside does not translate");
}
