// Batches: which windows of the text each step trains on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transformer/data/packed_tokens.hpp"

namespace ringside::transformer {

// What one rank reads in one step: for each sequence the input tokens, and the target tokens that
// the model should predict. The target is the input shifted by one token.
//
//     text      t h e _ r i n g s i d e
//     input     t h e _ r i n            length = 7
//     target      h e _ r i n g
struct Batch {
  std::int64_t sequences = 0, length = 0;
  std::vector<std::int32_t> input, target;  // [sequences, length], row by row
};

// One rank's part of a batch: sequences first .. first + count - 1.
struct Share {
  std::int64_t first = 0, count = 0;
};

// Tokens first .. first + count - 1 of each sequence.
struct TokenRange {
  std::int64_t first = 0, count = 0;
};

// The share of rank `rank` of `ranks`: batch / ranks sequences. Throws Error if the batch does not
// divide evenly: the mean of the ranks' means is the mean over the batch only for equal shares.
Share share_of_batch(std::int64_t batch, int rank, int ranks);

// Draws windows from the training or the validation text. The start of window i in step s is a
// function of (seed, s, i). So the global batch of a step is the same for every number of ranks,
// and a run that resumes at step s reads what it would have read.
class Batches {
 public:
  // `text` must outlive this object. Throws Error if it is shorter than length + 1 tokens.
  Batches(const PackedTokens& text, std::int64_t length, std::uint64_t seed);
  Batches(PackedTokens&& text, std::int64_t length, std::uint64_t seed) = delete;

  // The sequences of `share` from the global batch of `step`. With `tokens`, ascending, only these
  // of each sequence and their targets, and length is their count; without, all.
  Batch draw(std::int64_t step, Share share, std::span<const TokenRange> tokens = {}) const;

  // The windows of `share` from all windows that lie end to end from the beginning of the text. For
  // validation.
  Batch consecutive(Share share, std::span<const TokenRange> tokens = {}) const;
  std::int64_t windows() const;  // how many fit without overlap; at least 1

 private:
  Batch empty(Share share, std::span<const TokenRange> tokens) const;
  void append(std::uint64_t start, std::span<const TokenRange> tokens, Batch& batch) const;
  const PackedTokens* text_;
  std::int64_t length_;
  std::uint64_t seed_;
};

}  // namespace ringside::transformer
