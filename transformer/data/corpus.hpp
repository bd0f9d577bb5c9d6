// Corpus: a text, split into a training and a validation part, as tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
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
// So both parts contain every kind of file and share no byte. The cut is made in bytes, before a
// text is encoded (by `ringside tokenize`, as one text for each part): runs with different
// vocabularies hold out the same bytes.
class Corpus {
 public:
  // Splits a text in memory. Each byte is a token.
  explicit Corpus(const Bytes& text, int files = 1);

  // Joins the parts of encoded texts. Throws Error with the path and the reason, such as files of
  // different tokenizers.
  static Corpus of_files(const std::vector<std::filesystem::path>& token_files);

  const PackedTokens& training() const { return training_; }
  const PackedTokens& validation() const { return validation_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  int files() const { return files_; }          // of text
  std::size_t bytes() const { return bytes_; }  // of both parts, before encoding
  std::size_t held_out_bytes() const { return held_out_bytes_; }

  // A hash of the text; see fingerprint.hpp.
  std::uint32_t fingerprint() const { return fingerprint_; }

 private:
  Corpus() = default;
  PackedTokens training_, validation_;
  Vocabulary vocabulary_;
  int files_ = 0;
  std::size_t bytes_ = 0, held_out_bytes_ = 0;
  std::uint32_t fingerprint_ = 0;
};

// What a run reads from --data: files and directories of text (read_text), or encoded texts. Throws
// Error, also if there are both.
Corpus read_corpus(const std::vector<std::filesystem::path>& paths);

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

// The C++ standard library headers of the compiler that built this program, or else those in
// /usr/include/c++: about ten megabytes of real text on every machine with a compiler. Throws Error
// if there are none.
std::filesystem::path default_corpus();

}  // namespace ringside::transformer
