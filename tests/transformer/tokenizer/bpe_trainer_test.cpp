#include "transformer/tokenizer/bpe_trainer.hpp"
#include "base/read_file.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "base/json.hpp"
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

TEST_CASE("the trainer writes the same file as Hugging Face's trainer, byte for byte") {
  const Tokenizer tokenizer =
      train_bpe(read_file(reference("learn_from.txt")), {.vocabulary = 420});
  CHECK(tokenizer_json(tokenizer) == read_file(reference("gpt2.json")));
}

TEST_CASE("the trainer learns the same with another expression for words") {
  const auto expected = Json::parse(read_file(reference("llama3.json")));
  const std::string expression = expected["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
  const Tokenizer tokenizer = train_bpe(read_file(reference("learn_from.txt")),
                                        {.vocabulary = 400,
                                         .special_tokens = {"<|endoftext|>", "<|begin|>"},
                                         .expression = expression});
  const auto learnt = Json::parse(tokenizer_json(tokenizer));
  CHECK(learnt["model"]["vocab"] == expected["model"]["vocab"]);
  CHECK(learnt["model"]["merges"] == expected["model"]["merges"]);
}

TEST_CASE("the most frequent pair is merged first, of equal ones, that with the smaller ids") {
  const Tokenizer tokenizer = train_bpe(
      "low low low low low lower lower newest newest newest newest newest newest widest widest "
      "widest",
      {.vocabulary = 256 + 6, .special_tokens = {}});
  const auto merges = Json::parse(tokenizer_json(tokenizer))["model"]["merges"];
  // e s and s t occur 9 times each, and e has the smaller id. Then es t occurs 9 times; Ġ n and the
  // other pairs of "newest" occur 6 times.
  CHECK(merges[0] == Json({"e", "s"}));
  CHECK(merges[1] == Json({"es", "t"}));
  CHECK(merges.size() == 6);
}

TEST_CASE("pairs that are too rare are not merged") {
  CHECK(train_bpe("ab ab", {.vocabulary = 1000, .special_tokens = {}}).vocabulary() ==
        257);  // "ab" is merged; " ab" occurs only once
  CHECK(train_bpe("ab ab", {.vocabulary = 1000, .min_frequency = 3, .special_tokens = {}})
            .vocabulary() == 256);
  CHECK(train_bpe("ab ab", {.vocabulary = 1000, .min_frequency = 1, .special_tokens = {}})
            .vocabulary() == 258);
  CHECK(train_bpe("", {.vocabulary = 1000}).vocabulary() == 257);
}

TEST_CASE("the trainer accepts any bytes") {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += static_cast<char>(i * 7 % 256);
  const Tokenizer tokenizer = train_bpe(text, {.vocabulary = 300});
  CHECK(tokenizer.vocabulary() == 300);
  CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  CHECK(tokenizer.encode(text).size() < text.size());
}

TEST_CASE("invalid options are refused with the reason") {
  CHECK(refusal({.vocabulary = 256}) ==
        "a vocabulary of 256 has no room for the 256 bytes and 1 special token: it needs at least "
        "257");
  CHECK(refusal({.special_tokens = {"a", "<x>", "<x>"}}) ==
        "the special token \"<x>\" is given twice");
  CHECK(refusal({.special_tokens = {""}}) == "a special token is empty");
  CHECK(refusal({.expression = "\\w+"}) ==
        "the expression \\w+ has \\w, which Ringside does not translate");
}
