// Many tensors in one launch: a table of their addresses, passed by value as a kernel argument.
//
// A model has some hundred parameters, many of them small, and a launch for each would take longer
// than the work itself. So one launch covers them all. Each block works on up to elements_per_block
// elements of one tensor:
//
//     tensors:  [ 0            ][1][ 2       ]
//     blocks:   [ 0 ][ 1 ][ 2  ][3][ 4 ][ 5  ]
#pragma once

#include "autograd/kernels/block/block.hpp"

namespace ringside::autograd::cuda {

inline constexpr std::int64_t elements_per_block = 1 << 14;
constexpr std::int64_t blocks_for(std::int64_t elements) {
  return (elements + elements_per_block - 1) / elements_per_block;
}

// What every entry has besides its addresses. TensorTable::add sets `first_block` and `packs`.
struct TableEntry {
  std::int64_t elements = 0;
  int first_block = 0;
  bool packs = false;
};

// Entry derives from TableEntry and has all_fit_packs(): whether all its addresses are aligned to
// 16 bytes.
template <class Entry, int capacity>
struct TensorTable {
  static_assert(sizeof(Entry) * capacity <= 4000, "the arguments of a kernel are at most 4 KiB");
  Entry at[capacity];
  int count = 0, blocks = 0;

  constexpr bool full() const { return count == capacity; }
  constexpr void add(Entry entry) {
    if (entry.elements == 0) return;
    entry.first_block = blocks;
    entry.packs = entry.all_fit_packs();
    blocks += static_cast<int>(blocks_for(entry.elements));
    at[count++] = entry;
  }

  // The elements that block `index` works on: begin..end-1 of `entry`.
  struct Work {
    const Entry& entry;
    std::int64_t begin, end;
  };
  constexpr Work work_of(std::int64_t index) const {
    int low = 0, high = count;  // at[low] begins at or before block `index`, at[high] after it
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (at[middle].first_block <= index ? low : high) = middle;
    }
    const std::int64_t begin = (index - at[low].first_block) * elements_per_block,
                       end = begin + elements_per_block;
    return {at[low], begin, end < at[low].elements ? end : at[low].elements};
  }
};

}  // namespace ringside::autograd::cuda
