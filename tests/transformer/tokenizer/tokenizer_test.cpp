#include "transformer/tokenizer/tokenizer.hpp"
#include "base/read_file.hpp"

#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/random.hpp"
#include "tests/transformer/tokenizer/reference.hpp"
#include "transformer/tokenizer/alphabet.hpp"
#include "transformer/tokenizer/tokenizer_file.hpp"

using namespace ringside;
using namespace ringside::transformer;
using namespace ringside::testing;
using Ids = std::vector<std::int32_t>;

namespace {

// Text with letters, spaces, digits, characters of several bytes, special tokens, and bytes that
// are not UTF-8.
std::string random_bytes(std::uint64_t seed, std::size_t pieces) {
  static const std::vector<std::string> some = {
      "a",  "b",  " ",    "\n",       "the",           "ring",   "1",    "22",
      "ä",  "日", "🙂", "'s",       "<|endoftext|>", "\t",     "\xff", "\xc3",
      "\r", "<|", "  ",   "\xe2\x82", "\u3000",        "\u0301", "++"};
  std::string text;
  for (std::size_t i = 0; i < pieces; ++i) {
    const std::uint64_t pick = random_below(2 * some.size(), seed, 0, i);
    text += pick < some.size() ? some[pick]
                               : std::string(1, static_cast<char>(random_bits(seed, 1, i)));
  }
  return text;
}

}  // namespace

TEST_CASE("each byte has a letter, and each letter maps back to its byte") {
  CHECK(to_letters("the end\n") == "theĠendĊ");
  CHECK(to_letters(std::string("\0\x7f\xa0\xad\xff", 5)) == "ĀġłŃÿ");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(from_letters(to_letters(all)) == all);
  CHECK(bytes_in_order_of_letters().front() == '!');
  CHECK(bytes_in_order_of_letters().back() == 0xad);
  for (const char* wrong : {"a b", "日", "\u0144", "\n", "\xc3", "\u00ad"})
    CHECK_FALSE(from_letters(wrong));
}

TEST_CASE("ids equal those of Hugging Face's tokenizers") {
  const auto texts = reference_texts();
  for (const char* name : reference_names) {
    CAPTURE(name);
    const Tokenizer tokenizer = load_tokenizer(reference(fmt::format("{}.json", name)));
    const auto expected = Json::parse(read_file(reference(fmt::format("{}.ids.json", name))));
    REQUIRE(expected.size() == texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      CAPTURE(texts[i]);
      const Ids ids = tokenizer.encode(texts[i]);
      CHECK(ids == expected[i]["ids"].get<Ids>());
      CHECK(tokenizer.with_special_tokens(ids).size() == expected[i]["framed"].get<std::size_t>());
    }
  }
}

TEST_CASE("a post_processor puts special tokens around a text") {
  CHECK(load_tokenizer(reference("llama3.json")).with_special_tokens({7, 8}) == Ids{1, 7, 8});
  CHECK(load_tokenizer(reference("digits.json")).with_special_tokens({7, 8}) == Ids{7, 8, 0});
  CHECK(load_tokenizer(reference("gpt2.json")).with_special_tokens({7, 8}) == Ids{7, 8});
}

TEST_CASE("any bytes are decoded as they were encoded") {
  // Not llama3, whose <mask> removes white space.
  for (const char* name : {"gpt2", "digits", "split_isolated", "split_contiguous"}) {
    CAPTURE(name);
    const Tokenizer tokenizer = load_tokenizer(reference(fmt::format("{}.json", name)));
    std::string all;
    for (int a = 0; a < 256; ++a) {
      CHECK(tokenizer.decode(tokenizer.encode(std::string(1, static_cast<char>(a)))) ==
            std::string(1, static_cast<char>(a)));
      for (int b = 0; b < 256; ++b) all += {static_cast<char>(a), static_cast<char>(b)};
    }
    CHECK(tokenizer.decode(tokenizer.encode(all)) == all);
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      const std::string text = random_bytes(seed, seed);
      CAPTURE(seed);
      CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
    }
  }
}

TEST_CASE("with ignore_merges a word that is itself a token needs no merges") {
  auto json = Json::parse(read_file(reference("llama3.json")));
  const std::int32_t ring = json["model"]["vocab"].at("Ġring");
  json["model"]["merges"] = Json::array();
  CHECK(parse_tokenizer(json.dump()).encode(" ring") == Ids{ring});
  json["model"]["ignore_merges"] = false;
  CHECK(parse_tokenizer(json.dump()).encode(" ring").size() == 5);
}

TEST_CASE("decoding may leave out special tokens") {
  const Tokenizer tokenizer = load_tokenizer(reference("gpt2.json"));
  const Ids ids = tokenizer.encode("a<|endoftext|>b");
  CHECK(tokenizer.decode(ids) == "a<|endoftext|>b");
  CHECK(tokenizer.decode(ids, true) == "ab");
}

TEST_CASE("an id that is not a token is refused by name") {
  const Tokenizer tokenizer = load_tokenizer(reference("split_removed.json"));
  const auto n = tokenizer.vocabulary();
  const auto sentence = [&](std::int64_t id) {
    return fmt::format(
        "there is no token with the id {}: the tokenizer has {} tokens, and its largest id is {}",
        id, n, n - 1);
  };
  for (const std::int64_t id : {std::int64_t{-1}, n, std::int64_t{1} << 30})
    CHECK_THROWS_WITH_AS(tokenizer.decode(Ids{static_cast<std::int32_t>(id)}), sentence(id).c_str(),
                         Error);
}

TEST_CASE("merges are applied by rank and then from the left") {
  Merges merges;        // tokens a = 0, b = 1
  merges.add(0, 1, 2);  // ab
  merges.add(0, 0, 3);  // aa
  merges.add(3, 2, 4);  // aaab
  const auto applied = [&](Ids ids) {
    merges.apply(ids);
    return ids;
  };
  CHECK(applied({}) == Ids{});
  CHECK(applied({0}) == Ids{0});
  CHECK(applied({0, 0, 0}) == Ids{3, 0});
  CHECK(applied({0, 0, 1}) == Ids{0, 2});
  CHECK(applied({0, 0, 0, 1, 0, 1}) == Ids{4, 2});
  CHECK(merges.in_order() ==
        std::vector<std::pair<std::int32_t, std::int32_t>>{{0, 1}, {0, 0}, {3, 2}});
  merges.add(0, 1, 2);  // again: moves it to the end
  CHECK(applied({0, 0, 1}) == Ids{3, 1});
}

TEST_CASE("a word of a hundred thousand bytes takes no quadratic time") {
  const Tokenizer tokenizer = load_tokenizer(reference("gpt2.json"));
  const auto start = Clock::now();
  const std::string word(100'000, 'a');
  CHECK(tokenizer.decode(tokenizer.encode(word)) == word);
  // On an idle machine it takes 0.1 s. A quadratic loop takes half a minute.
  CHECK(seconds_since(start) < 20);
}

TEST_CASE("many threads may use a tokenizer at once") {
  const Tokenizer tokenizer = load_tokenizer(reference("gpt2.json"));
  const std::string text = random_bytes(7, 5000);
  const Ids expected = tokenizer.encode(text);
  std::vector<Ids> got(4);
  std::vector<std::thread> threads;
  for (Ids& ids : got) threads.emplace_back([&] { ids = tokenizer.encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : got) CHECK(ids == expected);
}
