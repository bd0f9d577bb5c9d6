// How a buffer of `count` elements is divided into chunks.
//
// The first `remainder` chunks are one unit longer than the others, so any count is fine, 0 too.
// 10 elements in 4 chunks:
//
//     chunk     0        1        2     3
//            [0 1 2]  [3 4 5]   [6 7] [8 9]
//
// The unit is one element, or a cache line (aligned_chunks.hpp). Where each rank has a block of
// several chunks, the buffer is divided into blocks like this, and then each block into its chunks:
//
//     block     0          1        10 elements in 2 blocks of 2 chunks
//     chunk     0      1   2      3
//            [0 1 2] [3 4][5 6 7] [8 9]
//
// Or the caller says where each block begins.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

class Chunks {
 public:
  // The unit is an element: reduce_scatter and all_gather promise this division to their callers.
  // Each of `blocks` has `parts` chunks.
  static Chunks even(std::size_t count, int blocks, int parts = 1) {
    return Chunks(count, blocks, 1, parts);
  }

  // Block i begins at element begins[i]; the last of `begins` is the number of all elements. The
  // memory of `begins` must outlive the result.
  static Chunks from(std::span<const std::size_t> begins, int parts = 1) {
    Chunks chunks(begins.back(), static_cast<int>(begins.size()) - 1, 1, parts);
    chunks.begins_ = begins.data();
    return chunks;
  }

  Chunks(std::size_t count, int blocks, std::size_t unit, int parts = 1)
      : count_(count),
        parts_(parts),
        blocks_(blocks),
        unit_(unit),
        floor_(count / unit / blocks),
        remainder_(count / unit % blocks) {}

  std::size_t count() const { return count_; }
  int chunks() const { return blocks_ * parts_; }

  // The first element of chunk `i`; begin(chunks()) is count().
  std::size_t begin(int i) const {
    const int part = i % parts_;
    const std::size_t block = begin_of_block(i / parts_);
    if (part == 0) return block;
    return block + Chunks(begin_of_block(i / parts_ + 1) - block, parts_, 1).begin(part);
  }
  // Of a range that is not circular.
  std::size_t begin(ChunkRange range) const { return begin(range.first); }
  std::size_t size(int i) const { return begin(i + 1) - begin(i); }
  std::size_t size(ChunkRange range) const {
    std::size_t elements = 0;
    for (int i = 0; i < range.pieces(); ++i) {
      const ChunkRange piece = range.piece(i);
      elements += begin(piece.first + piece.count) - begin(piece.first);
    }
    return elements;
  }

 private:
  std::size_t begin_of_block(int i) const {
    if (begins_) return begins_[i];
    return unit_ * (static_cast<std::size_t>(i) * floor_ + std::min<std::size_t>(i, remainder_));
  }

  std::size_t count_;
  int parts_, blocks_;
  std::size_t unit_, floor_, remainder_;
  const std::size_t* begins_ = nullptr;  // null: the first `remainder` blocks are one unit longer
};

}  // namespace ringside::collectives
