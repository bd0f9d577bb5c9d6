// What the tokens of a model stand for: bytes, or what a tokenizer makes of a text. Whoever reads
// text for a model, or shows what it says, asks here, and need not know which of the two it is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/tokenizer/tokenizer.hpp"

namespace ringside::transformer {

class Vocabulary {
 public:
  // 256 tokens, each a byte: nothing to learn, and no text that cannot be read.
  Vocabulary() = default;
  // `name` is how messages call it: its path.
  explicit Vocabulary(Tokenizer tokenizer, std::string name = "");
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;
  Vocabulary(Vocabulary&&) = default;

  // The tokenizer in `path`, a tokenizer.json or a folder with one. Throws Error with the path and
  // what is wrong.
  static Vocabulary load(const std::filesystem::path& path);
  // What the checkpoint in this folder speaks: the tokenizer.json that lies in it, or bytes.
  static Vocabulary beside(const std::filesystem::path& checkpoint);

  bool is_bytes() const { return !tokenizer_; }
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  const std::string& name() const { return name_; }

  std::int64_t size() const {
    return tokenizer_ ? tokenizer_->vocabulary() : 256;
  }  // the largest id and one more

  // A text as ids; what a tokenizer puts around every text is left out.
  std::vector<std::int32_t> encode(std::string_view text) const;
  // The beginning of a text that a model is to go on with: with what the tokenizer puts around.
  // Throws Error if it is empty.
  std::vector<std::int32_t> beginning(std::string_view text) const;

  // The bytes that a token stands for; "?" for one that a model may have and this vocabulary has
  // not.
  std::string bytes_of(std::int32_t token) const;
  std::vector<std::uint8_t> bytes_of(std::span<const std::int32_t> tokens) const;
  // By token: how many bytes it stands for; 0 where there is no such token.
  std::vector<std::uint32_t> byte_counts() const;

  // A number that tells one tokenizer from another, and 0 for bytes: a hash of 32 bits, never 0, of
  // all that changes ids.
  std::uint32_t fingerprint() const { return fingerprint_; }

 private:
  std::optional<Tokenizer> tokenizer_;
  std::string name_;
  std::uint32_t fingerprint_ = 0;
};

}  // namespace ringside::transformer
