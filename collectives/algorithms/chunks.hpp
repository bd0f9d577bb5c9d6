// How a buffer of `count` elements is divided into chunks.
//
// The first `remainder` chunks are one unit longer than the others, so any count is fine, 0 too.
// 10 elements in 4 chunks:
//
//     chunk     0        1        2     3
//            [0 1 2]  [3 4 5]   [6 7] [8 9]
//
// The unit is one element, or a cache line (aligned_chunks.hpp).
#pragma once

#include <algorithm>
#include <cstddef>

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

class Chunks {
 public:
  // The unit is an element: reduce_scatter and all_gather promise this division to their callers.
  static Chunks even(std::size_t count, int chunks) { return Chunks(count, chunks, 1); }

  Chunks(std::size_t count, int chunks, std::size_t unit)
      : count_(count),
        chunks_(chunks),
        unit_(unit),
        floor_(count / unit / chunks),
        remainder_(count / unit % chunks) {}

  std::size_t count() const { return count_; }
  int chunks() const { return chunks_; }

  // The first element of chunk `i`; begin(chunks()) is count().
  std::size_t begin(int i) const {
    return unit_ * (static_cast<std::size_t>(i) * floor_ + std::min<std::size_t>(i, remainder_));
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
  std::size_t count_;
  int chunks_;
  std::size_t unit_, floor_, remainder_;
};

}  // namespace ringside::collectives
