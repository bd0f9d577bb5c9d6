// Text as tokens: byte-level byte-pair encoding, and back.
//
// Read in this order: alphabet.hpp (how a token is written down), pre_tokenizer.hpp (a text is cut
// into words), merges.hpp (a word becomes tokens), this file, tokenizer_file.hpp (Hugging Face's
// tokenizer.json), bpe_trainer.hpp (where a vocabulary comes from).
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

// What a tokenizer is made from: the parts of a tokenizer.json.
struct TokenizerParts {
  std::vector<std::pair<std::string, std::int32_t>>
      vocabulary;  // tokens in letters (alphabet.hpp), with their ids
  std::vector<std::pair<std::string, std::string>>
      merges;                                // in letters, the one learnt first first
  bool ignore_merges = false;                // a word that is a token as a whole needs no merges
  std::vector<AddedToken> added;             // those in the vocabulary and those beyond it
  std::vector<std::int32_t> before, behind;  // what post_processor puts around a text
  std::string pre_tokenizer, post_processor, decoder;  // as JSON, as said, to be written again
  std::string unknown;  // the unk_token; never needed, as every byte is a token then. "": none
};

class Tokenizer {
 public:
  // Throws Error with a sentence where the parts contradict each other: an id given twice, a merge
  // of or into what is no token, an added token whose id is another's, ids strewn so far apart that
  // a model's vocabulary would be mostly empty.
  explicit Tokenizer(TokenizerParts parts);

  // Any bytes as ids. The same text gives the same ids as in Hugging Face's tokenizers (without the
  // tokens around it, see framed()). Throws Error if the text has a byte for which the vocabulary
  // has no token. May be called from many threads at once.
  std::vector<std::int32_t> encode(std::string_view text) const;

  // `ids` with the tokens around them that the file's post_processor asks for, such as one that
  // begins every text. Most files ask for none.
  std::vector<std::int32_t> framed(std::vector<std::int32_t> ids) const;

  // The bytes that `ids` stand for. decode(encode(text)) == text, unless the pre_tokenizer itself
  // adds or removes something. Throws Error naming the id that is no token. Special tokens are left
  // out if `skip_special`.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

  // Whether there is a token with this id: a model's vocabulary may be larger than its tokenizer's.
  bool has(std::int32_t id) const {
    return id >= 0 && id < vocabulary() && tokens_[static_cast<std::size_t>(id)].exists;
  }

  // The bytes of one token. Throws Error if there is none with this id.
  const std::string& bytes_of(std::int32_t id) const;

  // How large a model's vocabulary must be: the largest id and one more.
  std::int64_t vocabulary() const { return static_cast<std::int64_t>(tokens_.size()); }

  // The id of the added token `content`; -1 if there is none.
  std::int32_t added_token(std::string_view content) const;

  // What it was made from, for tokenizer_file.hpp; the merges stand in merges() only.
  const TokenizerParts& parts() const { return parts_; }
  const Merges& merges() const { return merges_; }

 private:
  struct Token {
    std::string bytes;
    bool exists = false, special = false;
  };
  // Words that this text has had already. Their ids lie one behind the other in `ids`.
  struct Seen {
    struct Where {
      std::size_t begin, count;
    };
    std::unordered_map<std::string_view, Where> words;
    std::vector<std::int32_t> ids;
  };
  void add_vocabulary();
  void add_merges();
  void add_added();
  Token& token_with(std::int32_t id);
  void encode_plain(std::string_view text, Seen& seen, std::vector<std::int32_t>& ids) const;
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

  TokenizerParts parts_;
  PreTokenizer pre_tokenizer_;
  std::vector<Token> tokens_;                                  // by id
  std::array<std::int32_t, 256> of_byte_;                      // -1: no token
  std::unordered_map<std::string, std::int32_t> whole_words_;  // only where merges may be ignored
  Merges merges_;
  AddedTokens first_,
      second_;  // those to look for first, and those (normalized) to look for in what is left
};

}  // namespace ringside::transformer
