#include "transformer/data/vocabulary.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "base/read_file.hpp"
#include "tests/transformer/encoded_text.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "transformer/data/fingerprint.hpp"
#include "transformer/data/packed_tokens.hpp"

using namespace ringside;
using namespace ringside::transformer;
using tests::PairTokenizer;

namespace {

std::string refusal(const Json& json) {
  try {
    Vocabulary(json, "{}", "mine");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("without a tokenizer a token is a byte") {
  const Vocabulary vocabulary;
  CHECK(vocabulary.is_bytes());
  CHECK(vocabulary.size() == 256);
  CHECK(vocabulary.fingerprint() == 0);
  CHECK(vocabulary.beginning() == std::vector<std::int32_t>{'\n'});
  const std::vector<std::int32_t> tokens = {97, 255, 256, 10};
  CHECK(vocabulary.bytes_of(tokens) == 4);
  CHECK(text_of(tokens, true) == "a\\xff?\n");
  CHECK(text_of(tokens, false) == "97,255,256,10");
}

TEST_CASE("a vocabulary of tokens knows the bytes of each") {
  const Vocabulary vocabulary = PairTokenizer(280).vocabulary();
  CHECK_FALSE(vocabulary.is_bytes());
  CHECK(vocabulary.name() == "mine");
  CHECK(vocabulary.size() == 280);
  CHECK(vocabulary.fingerprint() == 1280);
  CHECK(vocabulary.bytes_of(std::vector<std::int32_t>{97, 256, 279}) == 5);
}

TEST_CASE("a vocabulary that contradicts itself is refused") {
  const Json good = PairTokenizer(280).vocabulary_json();
  CHECK(refusal(good) == "accepted");
  Json bad = good;
  bad["beginning"] = std::vector<int>{280};
  CHECK(refusal(bad) == "its \"beginning\" is not a list of token ids from 0 to 279");
  bad["beginning"] = Json::array();
  CHECK(refusal(bad) == "its \"beginning\" is not a list of token ids from 0 to 279");
  bad = good;
  bad["byte_counts"] = Json::array();
  CHECK(refusal(bad) == "its vocabulary is empty");
  bad["byte_counts"] = std::vector<int>{-1};
  CHECK(refusal(bad).find("an integer from 0 to ") != std::string::npos);
  bad.erase("fingerprint");
  CHECK(refusal(bad) != "accepted");
}

TEST_CASE("the vocabulary of a checkpoint is in its two files, or bytes") {
  const TemporaryDirectory directory;
  const std::string folder = directory.path().string();
  CHECK(Vocabulary::of_checkpoint(directory.path()).is_bytes());
  const PairTokenizer tokenizer(280);
  const Vocabulary vocabulary = tokenizer.vocabulary();
  vocabulary.save(directory.path());
  CHECK(read_file(directory.path() / "tokenizer.json") == tokenizer.json());
  const Vocabulary found = Vocabulary::of_checkpoint(directory.path());
  CHECK(found.name() == folder + "/tokenizer.json");
  CHECK(found.fingerprint() == vocabulary.fingerprint());
  CHECK(found.byte_counts() == vocabulary.byte_counts());
  CHECK(found.is_of(tokenizer.json()));

  const auto refused = [&] {
    try {
      Vocabulary::of_checkpoint(directory.path());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  directory.write("vocabulary.json", "{}");
  CHECK(refused().starts_with("the vocabulary " + folder + "/vocabulary.json cannot be used: "));
  directory.write("vocabulary.json", tokenizer.vocabulary_json().dump() + '\0');
  CHECK(refused().ends_with("unexpected NUL byte; expected end of input"));
  std::filesystem::remove(directory.path() / "vocabulary.json");
  CHECK(refused() == folder + "/vocabulary.json is missing: `ringside tokenize --tokenizer " +
                         folder + " --save " + folder + "` writes it");
  directory.write("tokenizer.json", "of the user");  // stays
  vocabulary.save(directory.path());
  CHECK(read_file(directory.path() / "tokenizer.json") == "of the user");
}

TEST_CASE(
    "a tokenizer.json is known by its bytes, or by its fingerprint as older versions wrote it") {
  const PairTokenizer tokenizer(280);
  const std::string as_written_before = "{\n  \"pairs\": 24\n}";
  Json json = tokenizer.vocabulary_json();
  Fingerprint fingerprint;
  fingerprint.add(as_written_before);
  json["fingerprint"] = fingerprint.value();
  const Vocabulary vocabulary(json, tokenizer.json(), "mine");
  CHECK(vocabulary.is_of(tokenizer.json()));
  CHECK(vocabulary.is_of(as_written_before));
  CHECK_FALSE(vocabulary.is_of("{}"));
  CHECK_FALSE(Vocabulary().is_of("{}"));
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
