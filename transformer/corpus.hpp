// Text to learn from: bytes out of files, cut into a part to train on and a part to be examined on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace ringside::transformer {

// A token here is a byte: 0..255. No vocabulary to train, no text that cannot be read.
using Bytes = std::vector<std::uint8_t>;

// The text and its two parts. Of every 20 blocks of the text (64 KiB each, less where the text is short) the last one is held out:
//
//     text        0 1 2 ... 18 [19] 20 21 ... 38 [39] ...
//     training    0 1 2 ... 18      20 21 ... 38      ...     19 / 20 of the text
//     validation              [19]               [39] ...      1 / 20
//
// so that both see every kind of file, no byte is in both, and the cut depends on nothing but the text.
class Corpus {
 public:
  // The two parts of a text that is already in memory.
  explicit Corpus(const Bytes& text);

  std::span<const std::uint8_t> training() const { return training_; }
  std::span<const std::uint8_t> validation() const { return validation_; }
  std::size_t bytes() const { return training_.size() + validation_.size(); }

  // A number that tells one text from another: FNV-1a, folded to 32 bits so that a double holds it, and sums of it, exactly.
  std::uint32_t fingerprint() const;

 private:
  Bytes training_, validation_;
};

// What `read_text` found.
struct Text {
  Bytes bytes;
  int files = 0;
  int skipped = 0;  // in directories: not text (a NUL byte in the first 8 KiB), not readable, or not a regular file
};

// All bytes of the files under `paths`, in the order given. A file is taken as it is; a directory is walked in sorted order, on
// every machine the same, and what is not a readable text file in it is skipped. Throws Error where a path is missing, a file
// cannot be read or is empty, or a directory holds no text.
Text read_text(const std::vector<std::filesystem::path>& paths);

// The C++ standard library headers of the compiler that built this program: some ten megabytes of real text on every machine that
// can build it. Throws Error if they have gone since.
std::filesystem::path default_corpus();

}  // namespace ringside::transformer
