#include "transformer/tokenizer/tokenizer_file.hpp"
#include "base/read_file.hpp"

#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/random.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "tests/transformer/tokenizer/reference.hpp"

using namespace ringside;
using namespace ringside::transformer;
using namespace ringside::testing;
using Ids = std::vector<std::int32_t>;

namespace {

Json reference_json(const char* name = "split_isolated.json") {
  return Json::parse(read_file(reference(name)));
}

std::string refusal_of_text(const std::string& text) {
  try {
    parse_tokenizer(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

// The error message for a good file in which `path` ("/model/type") has been set to `value`;
// "accepted" if none.
std::string refusal(const std::string& path, const Json& value) {
  Json json = reference_json();
  Json* at = &json;
  std::istringstream keys(path.substr(1));
  for (std::string key; std::getline(keys, key, '/');)
    at = at->is_array() ? &at->at(std::stoi(key)) : &(*at)[key];
  *at = value;
  return refusal_of_text(json.dump());
}

}  // namespace

TEST_CASE("reading and writing a tokenizer.json changes nothing") {
  for (const char* name : reference_names) {
    CAPTURE(name);
    const std::string file = fmt::format("{}.json", name);
    const std::string text = read_file(reference(file));
    CHECK(Json::parse(tokenizer_json(parse_tokenizer(text))) == Json::parse(text));
  }
  CHECK(tokenizer_json(load_tokenizer(reference("gpt2.json"))) ==
        read_file(reference("gpt2.json")));
  CHECK(tokenizer_json(load_tokenizer(reference("llama3.json"))) ==
        read_file(reference("llama3.json")));
}

TEST_CASE("a tokenizer is saved to a file or a directory") {
  TemporaryDirectory directory;
  const Tokenizer tokenizer = load_tokenizer(reference("gpt2.json"));
  CHECK(save_tokenizer(directory.path() / "deep" / "down", tokenizer) ==
        directory.path() / "deep" / "down" / "tokenizer.json");
  CHECK(load_tokenizer(directory.path() / "deep" / "down").encode("the ring") ==
        tokenizer.encode("the ring"));
  CHECK(read_file(directory.path() / "deep" / "down" / "tokenizer_config.json") ==
        "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n");
  const auto file = directory.path() / "own.json";
  CHECK(save_tokenizer(file, tokenizer) == file);
  CHECK(read_file(file) == read_file(reference("gpt2.json")));
}

TEST_CASE("merges may be strings as in older files") {
  Json json = reference_json("gpt2.json");
  Json merges = Json::array({"#version: 0.2"});
  for (const Json& pair : json["model"]["merges"])
    merges.push_back(fmt::format("{} {}", pair[0].get<std::string>(), pair[1].get<std::string>()));
  json["model"]["merges"] = merges;
  CHECK(tokenizer_json(parse_tokenizer(json.dump())) == read_file(reference("gpt2.json")));
}

TEST_CASE("a file without some of the members is read as if they were null") {
  Json json = reference_json("gpt2.json");
  for (const char* name :
       {"version", "truncation", "padding", "normalizer", "post_processor", "added_tokens"})
    json.erase(name);
  for (const char* name :
       {"dropout", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges", "type"})
    json["model"].erase(name);
  CHECK(parse_tokenizer(json.dump()).encode("the ring") ==
        load_tokenizer(reference("gpt2.json")).encode("the ring"));
}

TEST_CASE("unsupported features are refused by name") {
  CHECK(refusal("/normalizer", {{"type", "NFC"}}) ==
        "it changes the text before encoding (normalizer NFC), which Ringside does not support");
  CHECK(refusal("/truncation", {{"max_length", 5}}) ==
        "it asks for truncation, which Ringside does not support: set \"truncation\" to null");
  CHECK(refusal("/padding", {{"strategy", "BatchLongest"}}) ==
        "it asks for padding, which Ringside does not support: set \"padding\" to null");
  CHECK(refusal("/model/type", "Unigram") == "its model is Unigram, but Ringside knows BPE only");
  CHECK(refusal("/model/type", "WordPiece") ==
        "its model is WordPiece, but Ringside knows BPE only");
  CHECK(refusal("/model/dropout", 0.1) ==
        "its model leaves merges out at random (dropout 0.1), which Ringside does not support");
  CHECK(refusal("/model/byte_fallback", true) ==
        "its model is not byte-level: it has tokens such as <0x00> for bytes (byte_fallback)");
  CHECK(refusal("/model/continuing_subword_prefix", "##") ==
        "its model marks tokens with continuing_subword_prefix \"##\", which Ringside does not "
        "support");
  CHECK(refusal("/model/end_of_word_suffix", "</w>") ==
        "its model marks tokens with end_of_word_suffix \"</w>\", which Ringside does not support");
  CHECK(refusal("/model/end_of_word_suffix", "") == "accepted");
  CHECK(refusal("/model/unk_token", "<unk>") == "accepted");
  CHECK(refusal("/decoder", {{"type", "Metaspace"}}) ==
        "its decoder is Metaspace, but Ringside knows ByteLevel only");
  CHECK(refusal("/decoder", nullptr) == "its decoder is null, but Ringside knows ByteLevel only");
  CHECK(refusal("/decoder",
                {{"type", "Sequence"}, {"decoders", Json::array({Json{{"type", "ByteLevel"}}})}}) ==
        "accepted");
  CHECK(refusal("/post_processor", {{"type", "RobertaProcessing"}}) ==
        "its post_processor is RobertaProcessing, but Ringside knows ByteLevel, TemplateProcessing "
        "and a Sequence of these");
  CHECK(refusal("/added_tokens",
                Json::array({Json{{"id", 300}, {"content", "x"}, {"single_word", true}}})) ==
        "the added token \"x\" matches whole words only (single_word), which Ringside does not "
        "support");
}

TEST_CASE("unsupported pre-tokenizers are refused by name") {
  const auto cutting = [](const char* text) {
    return refusal("/pre_tokenizer", Json::parse(text));
  };
  CHECK(cutting("null") ==
        "it has no pre_tokenizer: Ringside reads byte-level vocabularies, whose pre_tokenizer is, "
        "or ends with, ByteLevel");
  CHECK(cutting("7") == "its pre_tokenizer is 7, which has no type");
  CHECK(cutting(R"({"type":"Whitespace"})") ==
        "its pre_tokenizer is Whitespace, but Ringside knows ByteLevel, Split, Digits and a "
        "Sequence of these");
  CHECK(
      cutting(R"({"type":"Digits"})") ==
      "its pre_tokenizer does not end with ByteLevel: Ringside reads byte-level vocabularies only");
  CHECK(
      cutting(R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})") ==
      "its pre_tokenizer has a Digits after ByteLevel, where the text is already letters");
  CHECK(cutting(R"({"type":"Sequence"})") ==
        "its pre_tokenizer Sequence has no list of pretokenizers");
  CHECK(cutting(R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Glob":"*"},)"
                R"("behavior":"Isolated"},{"type":"ByteLevel"}]})") ==
        "the pattern of its pre_tokenizer Split is {\"Glob\":\"*\"}, neither a Regex nor a String");
  CHECK(cutting(R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"String":"*"},)"
                R"("behavior":"Eaten"},{"type":"ByteLevel"}]})") ==
        "the behavior of its pre_tokenizer Split is \"Eaten\", which Ringside does not know");
  CHECK(cutting(R"({"type":"ByteLevel","use_regex":1})") ==
        "the use_regex of its pre_tokenizer is 1, neither true nor false");
  CHECK(cutting(R"({"type":"ByteLevel","use_regex":false,"add_prefix_space":false})") ==
        "accepted");
}

TEST_CASE("an inconsistent file is refused with the reason") {
  CHECK(refusal("/model/vocab/a", 7) == "two of its tokens have the id 7; one is \"a\"");
  CHECK(refusal("/model/vocab/a", -7) == "the id of \"a\" is -7, which is not an id");
  CHECK(refusal("/model/vocab/a", 2000000000)
            .starts_with("it has the id 2000000000, which is not possible in a vocabulary of "));
  CHECK(refusal("/model/vocab", Json::object()) == "its vocabulary is empty");
  CHECK(refusal("/model/vocab", Json::array()) ==
        "its model has no vocab that gives each token an id");
  CHECK(refusal("/model/merges", nullptr) == "its model has no list of merges");
  CHECK(refusal("/model/merges/2", "a b c") == "merge 2 is \"a b c\", not two tokens");
  CHECK(refusal("/model/merges/2", Json::array({"a", "Z"})) ==
        "merge 2 is into \"aZ\", which is not in its vocabulary");
  CHECK(refusal("/model/merges/2", Json::array({"a", "ZZ"})) ==
        "merge 2 is of \"ZZ\", which is not in its vocabulary");
  CHECK(refusal("/model", 1) == "it has no model");
  const auto added = [](const char* text) { return refusal("/added_tokens", Json::parse(text)); };
  CHECK(added(R"([{"id":3,"content":"<x>"}])") ==
        "the added token \"<x>\" has the id 3, which contradicts the vocabulary");
  CHECK(added(R"([{"id":500,"content":"a"}])") ==
        "the added token \"a\" has the id 500, which contradicts the vocabulary");
  CHECK(added(R"([{"id":500,"content":"x1"},{"id":500,"content":"x2"}])") ==
        "the added token \"x2\" has the id 500, which contradicts the vocabulary");
  CHECK(added(R"([{"id":500,"content":""}])") == "the added token with the id 500 is empty");
  CHECK(added(R"([{"id":500}])") == "the added token {\"id\":500} has no content");
  CHECK(added(R"([{"id":500,"content":"<x>"}])") == "accepted");
  CHECK(refusal_of_text("") == "it is not JSON");
  CHECK(refusal_of_text("{\"model\":") == "it is not JSON");
  CHECK(refusal_of_text("[]") == "it is not an object");
  CHECK(refusal_of_text(std::string(1'000'000, '[')) == "it is nested more than 32 levels deep");
}

TEST_CASE("encoding a byte that the vocabulary lacks is refused") {
  Json json = reference_json("split_removed.json");
  json["model"]["vocab"].erase("Z");
  const std::string text = json.dump();
  CHECK_THROWS_WITH_AS(parse_tokenizer(text).encode("A to Z"),
                       "the tokenizer has no token for the byte 0x5a of the text", Error);
  json["model"]["unk_token"] = "A";
  CHECK(refusal_of_text(json.dump()) ==
        "it has no token for the byte 0x5a and uses \"A\" (unk_token) instead, which Ringside does "
        "not "
        "support");
}

TEST_CASE("a path without a tokenizer is refused with the reason") {
  TemporaryDirectory directory;
  const std::string base = directory.path().string();
  CHECK_THROWS_WITH_AS(
      load_tokenizer(directory.path()),
      fmt::format("cannot read the tokenizer {}/tokenizer.json: No such file or directory", base)
          .c_str(),
      Error);
  const auto path = directory.write("tokenizer.json", "{}");
  CHECK_THROWS_WITH_AS(
      load_tokenizer(path),
      fmt::format("the tokenizer {}/tokenizer.json cannot be used: it has no model", base).c_str(),
      Error);
}

TEST_CASE("a damaged file causes no other failure than an Error") {
  const auto start = Clock::now();
  const std::string whole = read_file(reference("llama3.json"));
  int accepted = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    std::string damaged = whole;
    for (std::uint64_t flips = 1 + random_below(3, 1, i, 0); flips > 0; --flips) {
      const std::size_t position = random_below(4, 2, i, flips) == 0
                                       ? random_below(damaged.size(), 1, i, 2 * flips)
                                       : random_below(2500, 1, i, 2 * flips);
      damaged[position] = "0123456789[]{}\",:.\\+*aZ\xff"[random_below(24, 1, i, 2 * flips + 1)];
    }
    if (random_below(8, 1, i, 99) == 0) damaged.resize(random_below(damaged.size(), 1, i, 100));
    if (refusal_of_text(damaged) != "accepted") continue;  // any other exception fails the test
    ++accepted;
    try {
      const Tokenizer tokenizer = parse_tokenizer(damaged);
      tokenizer.decode(tokenizer.with_special_tokens(
          tokenizer.encode("it's 12345 of\n\n<mask> them, Größe <|begin|> 🙂")));
    } catch (const Error&) {
      // a byte without a token
    }
  }
  CHECK(accepted > 10);  // a changed letter in a token makes another valid vocabulary
  CHECK(accepted < 900);
  CHECK(seconds_since(start) < 60);
}
