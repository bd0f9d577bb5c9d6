// Text to learn from: bytes out of files, cut into a part to train on and a part to be examined on,
// and turned into tokens.
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

// The text and its two parts. Of every 20 blocks of the text (64 KiB each, less where the text is
// short) the last one is held out:
//
//     text        0 1 2 ... 18 [19] 20 21 ... 38 [39] ...
//     training    0 1 2 ... 18      20 21 ... 38      ...     19 / 20 of the text
//     validation              [19]               [39] ...      1 / 20
//
// so that both see every kind of file, no byte is in both, and the cut depends on nothing but the
// text: whatever the vocabulary, the same bytes are held out. Each part is then encoded as one
// text.
class Corpus {
 public:
  // The two parts of a text that is already in memory. `vocabulary` is looked at here only. Throws
  // Error if it has no token for something in the text.
  explicit Corpus(const Bytes& text, const Vocabulary& vocabulary = {});

  const PackedTokens& training() const { return training_; }
  const PackedTokens& validation() const { return validation_; }
  std::size_t bytes() const { return bytes_; }  // of both parts, before they were tokens
  std::size_t held_out_bytes() const { return held_out_bytes_; }
  bool tokens_are_bytes() const { return byte_counts_.empty(); }
  std::int64_t vocabulary() const {
    return tokens_are_bytes() ? 256 : static_cast<std::int64_t>(byte_counts_.size());
  }

  // How many bytes these tokens of it stand for.
  std::int64_t bytes_of(std::span<const std::int32_t> tokens) const;

  // Numbers that tell one text, and one vocabulary, from another: see fingerprint.hpp. That of
  // bytes is 0.
  std::uint32_t fingerprint() const { return fingerprint_; }
  std::uint32_t vocabulary_fingerprint() const { return vocabulary_fingerprint_; }

 private:
  PackedTokens training_, validation_;
  std::size_t bytes_ = 0, held_out_bytes_ = 0;
  std::uint32_t fingerprint_ = 0, vocabulary_fingerprint_ = 0;
  std::vector<std::uint32_t> byte_counts_;  // by token; empty where a token is a byte
};

// What `read_text` found.
struct Text {
  Bytes bytes;
  int files = 0;
  int skipped = 0;  // in directories: not text (a NUL byte in the first 8 KiB), not readable, or
                    // not a regular file
};

// All bytes of the files under `paths`, in the order given. A file is taken as it is; a directory
// is walked in sorted order, on every machine the same, and what is not a readable text file in it
// is skipped. Throws Error where a path is missing, a file cannot be read or is empty, or a
// directory holds no text.
Text read_text(const std::vector<std::filesystem::path>& paths);

// The C++ standard library headers of the compiler that built this program: some ten megabytes of
// real text on every machine that can build it. Throws Error if they have gone since.
std::filesystem::path default_corpus();

}  // namespace ringside::transformer
