// Many tensors in one launch: a table of where they lie, which is passed by value as the kernel's
// argument.
//
// A model has some hundred parameters, many of them small; a launch for each would take longer than
// the work. So blocks are dealt out over all of them, each block one piece of one tensor:
//
//     slices:   [ 0            ][1][ 2       ]
//     blocks:   [ 0 ][ 1 ][ 2  ][3][ 4 ][ 5  ]
#pragma once

#include "autograd/kernels/block/block.hpp"

namespace ringside::autograd::cuda {

// How many numbers a block works on.
inline constexpr std::int64_t slice_piece = 1 << 14;

// What every slice says of itself, beside its addresses; `first_block` and `packs` are filled in by
// Slices.
struct SlicePlace {
  std::int64_t elements = 0;
  int first_block = 0;
  bool packs = false;
};

// Slice: SlicePlace, and bool on_packs(): whether all its addresses are on 16 bytes.
template <class Slice, int most>
struct Slices {
  static_assert(sizeof(Slice) * most <= 4000, "arguments of a kernel have 4 KiB");
  Slice at[most];
  int count = 0, blocks = 0;

  constexpr bool full() const { return count == most; }
  constexpr void add(Slice slice) {
    if (slice.elements == 0) return;
    slice.first_block = blocks;
    slice.packs = slice.on_packs();
    blocks += static_cast<int>((slice.elements + slice_piece - 1) / slice_piece);
    at[count++] = slice;
  }

  // The slice that block `index` works on, and which of its numbers.
  struct Share {
    const Slice& slice;
    std::int64_t begin, end;
  };
  constexpr Share share_of(std::int64_t index) const {
    int low = 0, high = count;  // at[low] begins at or before `index`, at[high] after it
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (at[middle].first_block <= index ? low : high) = middle;
    }
    const std::int64_t begin = (index - at[low].first_block) * slice_piece,
                       end = begin + slice_piece;
    return {at[low], begin, end < at[low].elements ? end : at[low].elements};
  }
};

}  // namespace ringside::autograd::cuda
