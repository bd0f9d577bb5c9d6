// Corpus: a text, split into a training and a validation part, as tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "transformer/data/packed_tokens.hpp"
#include "transformer/data/vocabulary.hpp"

namespace ringside::transformer {

// The text is cut into blocks of 64 KiB (smaller if the text is short), and the last of every 20
// blocks is held out for validation:
//
//     text        0 1 2 ... 18 [19] 20 21 ... 38 [39] ...
//     training    0 1 2 ... 18      20 21 ... 38      ...     19 / 20 of the text
//     validation              [19]               [39] ...      1 / 20
//
// So both parts contain every kind of file and share no byte. The cut is made in bytes, before
// encoding: runs with different vocabularies hold out the same bytes. Each part is then encoded as
// one text.
class Corpus {
 public:
  // Splits and encodes a text in memory. Keeps no reference to `vocabulary`. Throws Error if it
  // has no token for a byte of the text.
  explicit Corpus(const Bytes& text, const Vocabulary& vocabulary = {});

  const PackedTokens& training() const { return training_; }
  const PackedTokens& validation() const { return validation_; }
  std::size_t bytes() const { return bytes_; }  // of both parts, before encoding
  std::size_t held_out_bytes() const { return held_out_bytes_; }
  bool tokens_are_bytes() const { return byte_counts_.empty(); }
  std::int64_t vocabulary() const {
    return tokens_are_bytes() ? 256 : static_cast<std::int64_t>(byte_counts_.size());
  }

  // The number of bytes that these tokens stand for.
  std::int64_t bytes_of(std::span<const std::int32_t> tokens) const;

  // Hashes of the text and of the vocabulary (0 for bytes); see fingerprint.hpp.
  std::uint32_t fingerprint() const { return fingerprint_; }
  std::uint32_t vocabulary_fingerprint() const { return vocabulary_fingerprint_; }

 private:
  PackedTokens training_, validation_;
  std::size_t bytes_ = 0, held_out_bytes_ = 0;
  std::uint32_t fingerprint_ = 0, vocabulary_fingerprint_ = 0;
  std::vector<std::uint32_t> byte_counts_;  // by token id; empty if tokens are bytes
};

// The result of read_text().
struct Text {
  Bytes bytes;
  int files = 0;

  // Directory entries that were skipped: not text (a NUL byte in the first 8 KiB), not readable, or
  // not a regular file.
  int skipped = 0;
};

// All bytes of the files in `paths`, in the given order. A file is read whole. A directory is
// walked in sorted order, the same on every machine, and everything but readable text files is
// skipped. Throws Error if a path is missing, a file is unreadable or empty, or a directory
// contains no text.
Text read_text(const std::vector<std::filesystem::path>& paths);

// The C++ standard library headers of the compiler that built this program: about ten megabytes of
// real text on every machine that can build it. Throws Error if they no longer exist.
std::filesystem::path default_corpus();

}  // namespace ringside::transformer
