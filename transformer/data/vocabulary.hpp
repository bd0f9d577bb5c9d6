// Vocabulary: what the tokens of a model stand for. They are bytes, or the tokens of a tokenizer.
//
// A tokenizer is not read here: `ringside tokenize`, which is Python, makes files of tokens
// (corpus_file.hpp), and the text of generated tokens. What is known of its tokens stands in
//
//     DIR/tokenizer.json     the tokenizer, for Python and for transformers
//     DIR/vocabulary.json    {"fingerprint": 764039798, "beginning": [198],
//                             "byte_counts": [13, ...]}
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace ringside::transformer {

class Vocabulary {
 public:
  // Bytes: 256 tokens. They need no training and can represent any text.
  Vocabulary() = default;

  // The tokens of a tokenizer: `json` has the members of vocabulary.json, and `tokenizer` is the
  // text of its tokenizer.json. Error messages call it `name`. Throws Error if a member is missing,
  // is of another type, or contradicts another.
  Vocabulary(const Json& json, std::string tokenizer, std::string name);

  // The vocabulary of a checkpoint directory: bytes if it has no tokenizer.json. Throws Error with
  // the path and the reason, such as a tokenizer.json without vocabulary.json.
  static Vocabulary of_checkpoint(const std::filesystem::path& directory);

  bool is_bytes() const { return byte_counts_.empty(); }
  const std::string& name() const { return name_; }

  // The largest token id plus one.
  std::int64_t size() const {
    return is_bytes() ? 256 : static_cast<std::int64_t>(byte_counts_.size());
  }

  // For each token id, the number of bytes that it stands for; 0 if there is no such token. Empty
  // for bytes.
  const std::vector<std::uint32_t>& byte_counts() const { return byte_counts_; }
  std::int64_t bytes_of(std::span<const std::int32_t> tokens) const;

  // The ids of an empty line, with the special tokens that the tokenizer puts around a text. A
  // sample continues it.
  const std::vector<std::int32_t>& beginning() const { return beginning_; }

  // A 32-bit hash of everything that influences ids. It is 0 for bytes and never 0 for a tokenizer.
  std::uint32_t fingerprint() const { return fingerprint_; }

  // Whether this text of a tokenizer.json is that of this vocabulary: the same bytes, or the layout
  // of older versions, whose hash is the fingerprint.
  bool is_of(const std::string& tokenizer_json) const;

  // Writes both files, if tokens are not bytes. A tokenizer.json that is there stays as it is.
  void save(const std::filesystem::path& directory) const;

 private:
  std::vector<std::uint32_t> byte_counts_;
  std::vector<std::int32_t> beginning_ = {'\n'};
  std::uint32_t fingerprint_ = 0;
  std::string tokenizer_, name_;
};

// Tokens as text: of bytes what they say, safe to print; of others their ids, "464,262,1001".
std::string text_of(std::span<const std::int32_t> tokens, bool are_bytes);

}  // namespace ringside::transformer
