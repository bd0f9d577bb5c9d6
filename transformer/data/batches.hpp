// Which windows of the text each step trains on, whoever asks.
#pragma once

#include <cstdint>
#include <vector>

#include "transformer/data/packed_tokens.hpp"

namespace ringside::transformer {

// What one rank reads in one step: for every sequence the tokens and, one further on, the tokens
// that should be foretold.
//
//     text      t h e _ r i n g s i d e
//     input     t h e _ r i n            sequence = 7
//     target      h e _ r i n g
struct Batch {
  std::int64_t sequences = 0, length = 0;
  std::vector<std::int32_t> input, target;  // (sequences, length), row by row
};

// The part of a global batch that one rank reads: sequences first .. first+count-1.
struct Share {
  std::int64_t first = 0, count = 0;
};

// Rank `rank` of `ranks` reads batch / ranks sequences. Throws Error where the ranks do not divide
// the batch: the mean of the ranks' means is the mean of all only where their shares are equal.
Share share_of_batch(std::int64_t batch, int rank, int ranks);

// Draws windows from one part of a corpus. Window i of step s starts where the random number of
// (seed, s, i) says, so the GLOBAL batch of a step is the same for every number of ranks, and a run
// that is resumed at step s reads on where it would have.
class Batches {
 public:
  // `text` must outlive this object. Throws Error if it is too short for one window of length + 1
  // tokens.
  Batches(const PackedTokens& text, std::int64_t length, std::uint64_t seed);
  Batches(PackedTokens&& text, std::int64_t length, std::uint64_t seed) = delete;

  // The sequences of `share` out of the global batch of `step`.
  Batch draw(std::int64_t step, Share share) const;

  // `share` out of windows that lie one behind the other from the beginning, as an examination
  // reads them; see windows().
  Batch consecutive(Share share) const;
  std::int64_t windows() const;  // that fit without overlap, at least 1

 private:
  void append(std::uint64_t start, Batch& batch) const;
  const PackedTokens* text_;
  std::int64_t length_;
  std::uint64_t seed_;
};

}  // namespace ringside::transformer
