// Vocabulary: what the tokens of a model stand for. They are bytes, or the tokens of a tokenizer;
// callers need not know which.
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
  // Bytes: 256 tokens. They need no training and can represent any text.
  Vocabulary() = default;

  // The tokens of a tokenizer. Error messages call it `name`, usually its path.
  explicit Vocabulary(Tokenizer tokenizer, std::string name = "");

  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;
  Vocabulary(Vocabulary&&) = default;

  // Loads `path`, a tokenizer.json or a directory that contains one. Throws Error with the path and
  // the reason.
  static Vocabulary load(const std::filesystem::path& path);

  // The vocabulary of a checkpoint directory: its tokenizer.json, or bytes if there is none.
  static Vocabulary of_checkpoint(const std::filesystem::path& directory);

  bool is_bytes() const { return !tokenizer_; }
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  const std::string& name() const { return name_; }

  // The largest token id plus one.
  std::int64_t size() const { return tokenizer_ ? tokenizer_->vocabulary() : 256; }

  // The ids of a text, without special tokens around it.
  std::vector<std::int32_t> encode(std::string_view text) const;

  // The ids of a prompt, with the special tokens that the tokenizer puts around a text. Throws
  // Error if the text is empty.
  std::vector<std::int32_t> encode_prompt(std::string_view text) const;

  // The bytes that tokens stand for. A token that this vocabulary lacks becomes "?": a model's
  // vocabulary may be larger than its tokenizer's.
  std::string bytes_of(std::int32_t token) const;
  std::vector<std::uint8_t> bytes_of(std::span<const std::int32_t> tokens) const;

  // For each token id, the number of bytes that it stands for; 0 if there is no such token.
  std::vector<std::uint32_t> byte_counts() const;

  // A 32-bit hash of everything that influences ids. It is 0 for bytes and never 0 for a tokenizer.
  std::uint32_t fingerprint() const { return fingerprint_; }

 private:
  std::optional<Tokenizer> tokenizer_;
  std::string name_;
  std::uint32_t fingerprint_ = 0;
};

}  // namespace ringside::transformer
