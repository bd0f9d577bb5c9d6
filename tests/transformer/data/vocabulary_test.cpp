#include "transformer/data/vocabulary.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "transformer/data/packed_tokens.hpp"
#include "transformer/tokenizer/bpe_trainer.hpp"
#include "transformer/tokenizer/tokenizer_file.hpp"

using namespace ringside;
using namespace ringside::transformer;

namespace {

constexpr const char* text =
    "the ring passes each chunk on to its right-hand neighbour, and the ring turns; ";

}  // namespace

TEST_CASE("without a tokenizer a token is a byte") {
  const Vocabulary vocabulary;
  CHECK(vocabulary.is_bytes());
  CHECK(vocabulary.size() == 256);
  CHECK(vocabulary.fingerprint() == 0);
  CHECK(vocabulary.encode("a\xff") == std::vector<std::int32_t>{97, 255});
  CHECK(vocabulary.bytes_of(255) == "\xff");
  CHECK(vocabulary.bytes_of(256) == "?");
  CHECK(vocabulary.byte_counts() == std::vector<std::uint32_t>(256, 1));
  CHECK_THROWS_WITH_AS(vocabulary.encode_prompt(""), "a prompt needs at least one byte", Error);
}

TEST_CASE("the tokens of a text stand for exactly its bytes") {
  const Vocabulary vocabulary(train_bpe(text, {.vocabulary = 290}), "mine");
  CHECK_FALSE(vocabulary.is_bytes());
  CHECK(vocabulary.name() == "mine");
  CHECK(vocabulary.size() <= 290);
  const auto ids = vocabulary.encode(text), prompt = vocabulary.encode_prompt(text);
  CHECK(ids.size() < std::string_view(text).size());
  CHECK(prompt == ids);  // this tokenizer puts no special tokens around a text
  const auto counts = vocabulary.byte_counts();
  REQUIRE(counts.size() == static_cast<std::size_t>(vocabulary.size()));
  std::size_t bytes = 0;
  for (const auto id : ids) bytes += counts[static_cast<std::size_t>(id)];
  CHECK(bytes == std::string_view(text).size());
  const auto again = vocabulary.bytes_of(ids);
  CHECK(std::string(again.begin(), again.end()) == text);
  CHECK(vocabulary.bytes_of(100'000) == "?");
}

TEST_CASE("a fingerprint depends on the tokenizer and not on the layout of its file") {
  const Vocabulary one(train_bpe(text, {.vocabulary = 290})),
      same(train_bpe(text, {.vocabulary = 290})), other(train_bpe(text, {.vocabulary = 262}));
  CHECK(one.fingerprint() != 0);
  CHECK(one.fingerprint() == same.fingerprint());
  CHECK(one.fingerprint() != other.fingerprint());
  TemporaryDirectory directory;
  std::string spaced = "\n  ";
  for (const char c : tokenizer_json(*one.tokenizer()))
    spaced += c == '\n' ? "\n " : std::string(1, c);
  directory.write("tokenizer.json", spaced);
  CHECK(Vocabulary::load(directory.path()).fingerprint() == one.fingerprint());
}

TEST_CASE("the vocabulary of a checkpoint is its tokenizer.json, or bytes") {
  TemporaryDirectory directory;
  CHECK(Vocabulary::of_checkpoint(directory.path()).is_bytes());
  save_tokenizer(directory.path(), train_bpe(text, {.vocabulary = 290}));
  const Vocabulary found = Vocabulary::of_checkpoint(directory.path());
  CHECK(found.name() == (directory.path() / "tokenizer.json").string());
  CHECK(found.fingerprint() == Vocabulary::load(directory.path() / "tokenizer.json").fingerprint());
  directory.write("tokenizer.json", "{}");
  CHECK_THROWS_AS(Vocabulary::of_checkpoint(directory.path()), Error);
}

TEST_CASE("tokens are packed into the narrowest type that holds the vocabulary") {
  for (const auto& [vocabulary, width] :
       {std::pair(256, 1u), std::pair(257, 2u), std::pair(65536, 2u), std::pair(65537, 4u)}) {
    CAPTURE(vocabulary);
    const std::vector<std::int32_t> ids = {0, vocabulary - 1, 7, vocabulary / 2};
    const PackedTokens packed(ids, vocabulary);
    CHECK(packed.bytes_per_id() == width);
    CHECK(packed.size() == 4);
    CHECK(packed.all() == ids);
    std::vector<std::int32_t> some = {-1};
    packed.append_to(some, 1, 2);
    CHECK(some == std::vector<std::int32_t>{-1, vocabulary - 1, 7});
    CHECK_THROWS_WITH_AS(packed.append_to(some, 3, 2),
                         "tokens 3 to 5 were asked for, but there are 4", Error);
  }
  const std::vector<std::int32_t> ids = {0, 300};
  CHECK_THROWS_WITH_AS(PackedTokens(ids, 300), "the token 300 is not in a vocabulary of 300",
                       Error);
  CHECK(PackedTokens().all().empty());
}
