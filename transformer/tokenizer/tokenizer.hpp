// Tokenizer: text to token ids and back, with byte-level byte-pair encoding.
//
// Reading order: alphabet.hpp (how tokens are written as text), pre_tokenizer.hpp (text to words),
// merges.hpp (words to tokens), this file, tokenizer_file.hpp (Hugging Face's tokenizer.json),
// bpe_trainer.hpp (learning a vocabulary).
//
//     "I've 10 cats<|endoftext|>"
//       added tokens    I've 10 cats | <|endoftext|>
//       words           I | 've | ␣10 | ␣cats | <|endoftext|>
//       merges          I | 've | ␣1 | 0 | ␣c | ats | <|endoftext|>
//       ids             41, 1053, 352, 16, 269, 1381, 0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transformer/tokenizer/added_tokens.hpp"
#include "transformer/tokenizer/merges.hpp"
#include "transformer/tokenizer/pre_tokenizer.hpp"

namespace ringside::transformer {

// The contents of a tokenizer.json.
struct TokenizerParts {
  // Tokens in letters (alphabet.hpp), with their ids.
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;

  // Pairs of tokens in letters, in the order in which they were learnt.
  std::vector<std::pair<std::string, std::string>> merges;

  // Whether a word that is itself a token is encoded without merges.
  bool ignore_merges = false;

  // Added tokens, whether or not they are also in the vocabulary.
  std::vector<AddedToken> added;

  // The ids that post_processor puts before and after a text.
  std::vector<std::int32_t> before, after;

  // As JSON, unchanged, to be written again.
  std::string pre_tokenizer, post_processor, decoder;

  // unk_token; "": none. It is never produced: a tokenizer that has one needs a token for each
  // byte.
  std::string unknown;
};

class Tokenizer {
 public:
  // Throws Error with one sentence if the parts are inconsistent: an id is used twice, a merge
  // refers to a missing token, an added token has the id of another, or ids are so sparse that a
  // model's vocabulary would be mostly empty.
  explicit Tokenizer(TokenizerParts parts);

  // Any bytes as ids: the same ids as in Hugging Face's tokenizers, without special tokens around
  // the text (see with_special_tokens). Throws Error if the vocabulary has no token for a byte of
  // the text. Safe to call from many threads at once.
  std::vector<std::int32_t> encode(std::string_view text) const;

  // `ids` with the special tokens that the post_processor puts around a text, such as one that
  // begins it. Most files have none.
  std::vector<std::int32_t> with_special_tokens(std::vector<std::int32_t> ids) const;

  // The bytes that `ids` stand for; without special tokens if `skip_special`. decode(encode(text))
  // == text, unless the pre_tokenizer adds or removes something. Throws Error that names the id if
  // one is not a token.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

  // Whether there is a token with this id. A model's vocabulary may be larger than its tokenizer's.
  bool has(std::int32_t id) const {
    return id >= 0 && id < vocabulary() && tokens_[static_cast<std::size_t>(id)].exists;
  }

  // The bytes of one token. Throws Error if there is none with this id.
  const std::string& bytes_of(std::int32_t id) const;

  // The largest id plus one: the smallest vocabulary that a model needs.
  std::int64_t vocabulary() const { return static_cast<std::int64_t>(tokens_.size()); }

  // The parts that it was made from, for tokenizer_file.hpp. The merges are only in merges().
  const TokenizerParts& parts() const { return parts_; }
  const Merges& merges() const { return merges_; }

 private:
  struct Token {
    std::string bytes;
    bool exists = false, special = false;
  };
  // Words that have been encoded in this text, and their ids, stored one after the other.
  struct WordCache {
    struct Range {
      std::size_t begin, count;
    };
    std::unordered_map<std::string_view, Range> words;
    std::vector<std::int32_t> ids;
  };
  void add_vocabulary();
  void add_merges();
  void add_added();
  Token& token_with(std::int32_t id);
  void encode_plain(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const;
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

  TokenizerParts parts_;
  PreTokenizer pre_tokenizer_;
  std::vector<Token> tokens_;                                  // by id
  std::array<std::int32_t, 256> id_of_byte_;                   // -1: no token
  std::unordered_map<std::string, std::int32_t> whole_words_;  // empty unless ignore_merges
  Merges merges_;
  AddedTokens added_;             // searched for first
  AddedTokens added_normalized_;  // searched for in the rest of the text
};

}  // namespace ringside::transformer
