#include "transformer/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "base/json.hpp"
#include "transformer/tokenizer/alphabet.hpp"

namespace ringside::transformer {
namespace {

// Limits of the word cache, in bytes per word and in words. Without them, text that never repeats
// would fill the memory.
constexpr std::size_t longest_cached = 256, most_cached = 1 << 20;

// Ids may have gaps. But there is a table with an entry per id, so the largest id is limited.
std::int64_t largest_id_of(std::size_t tokens) {
  return 65536 + 4 * static_cast<std::int64_t>(tokens);
}

}  // namespace

Tokenizer::Tokenizer(TokenizerParts parts)
    : parts_(std::move(parts)), pre_tokenizer_(Json::parse(parts_.pre_tokenizer)) {
  id_of_byte_.fill(-1);
  add_vocabulary();
  add_merges();
  add_added();
  for (const std::int32_t id : parts_.before) bytes_of(id);
  for (const std::int32_t id : parts_.after) bytes_of(id);
  if (parts_.unknown.empty()) return;
  const auto missing = std::find(id_of_byte_.begin(), id_of_byte_.end(), -1);
  require(
      missing == id_of_byte_.end(),
      "it has no token for the byte 0x{:02x} and uses \"{}\" (unk_token) instead, which Ringside "
      "does not support",
      missing - id_of_byte_.begin(), parts_.unknown);
}

Tokenizer::Token& Tokenizer::token_with(std::int32_t id) {
  const std::int64_t largest = largest_id_of(parts_.vocabulary.size() + parts_.added.size());
  require(id >= 0 && id <= largest,
          "it has the id {}, which is not possible in a vocabulary of {} tokens", id,
          parts_.vocabulary.size() + parts_.added.size());
  if (tokens_.size() <= static_cast<std::size_t>(id))
    tokens_.resize(static_cast<std::size_t>(id) + 1);
  return tokens_[static_cast<std::size_t>(id)];
}

void Tokenizer::add_vocabulary() {
  require(!parts_.vocabulary.empty(), "its vocabulary is empty");
  for (const auto& [letters, id] : parts_.vocabulary) {
    Token& token = token_with(id);
    require(!token.exists, "two of its tokens have the id {}; one is \"{}\"", id, letters);
    const auto bytes = from_letters(letters);
    token = {bytes.value_or(letters), true, false};
    if (!bytes) continue;  // text is never encoded as this token
    if (bytes->size() == 1) id_of_byte_[static_cast<std::uint8_t>(bytes->front())] = id;
    if (parts_.ignore_merges) whole_words_.emplace(*bytes, id);
  }
}

void Tokenizer::add_merges() {
  std::unordered_map<std::string, std::int32_t> ids(parts_.vocabulary.begin(),
                                                    parts_.vocabulary.end());
  const auto id_of = [&](const std::string& letters, std::size_t number, const char* what) {
    const auto found = ids.find(letters);
    require(found != ids.end(), "merge {} is {} \"{}\", which is not in its vocabulary", number,
            what, letters);
    return found->second;
  };
  for (std::size_t i = 0; i < parts_.merges.size(); ++i) {
    const auto& [left, right] = parts_.merges[i];
    const std::int32_t left_id = id_of(left, i, "of"), right_id = id_of(right, i, "of");
    merges_.add(left_id, right_id, id_of(left + right, i, "into"));
  }
  parts_.merges.clear();
}

// An added token is plain text, not letters. If it is also in the vocabulary, the ids must agree.
void Tokenizer::add_added() {
  const std::unordered_map<std::string, std::int32_t> ids(parts_.vocabulary.begin(),
                                                          parts_.vocabulary.end());
  std::vector<AddedToken> plain, normalized;
  for (const AddedToken& added : parts_.added) {
    require(!added.content.empty(), "the added token with the id {} is empty", added.id);
    Token& token = token_with(added.id);
    const auto found = ids.find(added.content);
    const bool same = found != ids.end() && found->second == added.id;
    require(same || (found == ids.end() && !token.exists),
            "the added token \"{}\" has the id {}, which contradicts the vocabulary", added.content,
            added.id);
    token = {added.content, true, added.special};
    (added.normalized ? normalized : plain).push_back(added);
  }
  added_ = AddedTokens(plain);
  added_normalized_ = AddedTokens(normalized);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  WordCache cache;
  std::vector<std::int32_t> ids;
  const auto take_token = [&](std::int32_t id) { ids.push_back(id); };
  const auto take_plain = [&](std::string_view plain) { encode_plain(plain, cache, ids); };
  const auto take_rest = [&](std::string_view rest) {
    added_normalized_.split(rest, take_plain, take_token);
  };
  added_.split(text, take_rest, take_token);
  return ids;
}

void Tokenizer::encode_plain(std::string_view text, WordCache& cache,
                             std::vector<std::int32_t>& ids) const {
  pre_tokenizer_.words(text, [&](std::string_view word) {
    const auto found = cache.words.find(word);
    if (found != cache.words.end()) {
      const auto begin = cache.ids.begin() + static_cast<std::ptrdiff_t>(found->second.begin);
      ids.insert(ids.end(), begin, begin + static_cast<std::ptrdiff_t>(found->second.count));
      return;
    }
    const std::size_t before = ids.size();
    encode_word(word, ids);
    // The cache keeps views, so it can only keep words that are part of the text.
    const bool is_in_text = !std::less<>()(word.data(), text.data()) &&
                            !std::less<>()(text.data() + text.size(), word.data() + word.size());
    if (!is_in_text || word.size() > longest_cached || cache.words.size() == most_cached) return;
    cache.words.emplace(word, WordCache::Range{cache.ids.size(), ids.size() - before});
    cache.ids.insert(cache.ids.end(), ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
  });
}

void Tokenizer::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (parts_.ignore_merges) {
    const auto found = whole_words_.find(std::string(word));
    if (found != whole_words_.end()) return ids.push_back(found->second);
  }
  std::vector<std::int32_t> tokens;
  for (const char c : word) {
    const auto byte = static_cast<std::uint8_t>(c);
    require(id_of_byte_[byte] >= 0, "the tokenizer has no token for the byte 0x{:02x} of the text",
            byte);
    tokens.push_back(id_of_byte_[byte]);
  }
  merges_.apply(tokens);
  ids.insert(ids.end(), tokens.begin(), tokens.end());
}

std::vector<std::int32_t> Tokenizer::with_special_tokens(std::vector<std::int32_t> ids) const {
  ids.insert(ids.begin(), parts_.before.begin(), parts_.before.end());
  ids.insert(ids.end(), parts_.after.begin(), parts_.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string& bytes = bytes_of(id);
    if (!skip_special || !tokens_[static_cast<std::size_t>(id)].special) text += bytes;
  }
  return text;
}

const std::string& Tokenizer::bytes_of(std::int32_t id) const {
  require(has(id),
          "there is no token with the id {}: the tokenizer has {} tokens, and its largest id is {}",
          id,
          std::count_if(tokens_.begin(), tokens_.end(),
                        [](const Token& token) { return token.exists; }),
          vocabulary() - 1);
  return tokens_[static_cast<std::size_t>(id)].bytes;
}

}  // namespace ringside::transformer
