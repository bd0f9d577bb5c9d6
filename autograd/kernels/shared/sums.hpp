// Sums of one tensor or of many, always in the same order: each block sums a part, then one block
// sums the partial sums (Total). There are no atomics, so equal launches give the same bits.
#pragma once

#include "autograd/kernels/block/tensor_table.hpp"
#include "autograd/kernels/shared/elementwise.hpp"

namespace ringside::autograd::cuda {

// The sum of x over the threads of the block, as a tree. Thread 0 gets the result, the others 0.
// Needs 8 bytes of shared memory for each thread.
//
//     partial:   0  1  2  3  4  5  6        half of 7 is 4, rounded up: 0 to 2 add 4 to 6
//                04 15 26 3                 half of 4 is 2: 0 and 1 add 2 and 3
//                0426 153                   half of 2 is 1: 0 adds 1
//                0426153
template <Block B>
constexpr double sum_in_shared(B& block, double x) {
  double* const partial = reinterpret_cast<double*>(block.shared());
  partial[block.thread()] = x;
  for (int left = block.threads(); left > 1;) {
    const int half = (left + 1) / 2;
    block.sync();
    if (block.thread() < left - half) partial[block.thread()] += partial[block.thread() + half];
    left = half;
  }
  return block.thread() == 0 ? partial[0] : 0;
}

// numbers [count] -> total = factor times their sum, added in fp64. For one block.
template <class In, class Out>
struct Total {
  static constexpr int threads = 512;
  const In* numbers;
  std::int64_t count;
  Out* total;
  double factor = 1;

  constexpr std::int64_t blocks() const { return 1; }
  constexpr std::size_t shared_bytes() const { return threads * sizeof(double); }

  template <Block B>
  constexpr void operator()(B& block) const {
    double mine = 0;
    for (std::int64_t i = block.thread(); i < count; i += block.threads())
      mine += static_cast<double>(numbers[i]);
    const double all = sum_in_shared(block, mine);
    if (block.thread() == 0) *total = static_cast<Out>(all * factor);
  }
};

// x [n] -> partials [count()]: the sum of each block's ranges. Threads add in fp64; the block adds
// the sums of its threads in fp32.
template <class S>
struct PartialSums {
  static constexpr int threads = 256;
  const S* x;
  float* partials;
  std::int64_t n;
  bool packs;

  template <Block B>
  constexpr void operator()(B& block) const {
    double mine = 0;
    for_each_in_ranges<S>(block, n, packs, [&](std::int64_t i, auto width) {
      const auto xi = load_floats<width.value>(x + i);
      for (int k = 0; k < width.value; ++k) mine += static_cast<double>(xi.at[k]);
    });
    const float all = block.sum(static_cast<float>(mine));
    if (block.thread() == 0) partials[block.index()] = all;
  }
};

// Many tensors -> partials [blocks()]: the sum of squares of each block's elements, in fp64. Reads
// each element once.
template <class S>
struct SquareSums {
  static constexpr int threads = 256;
  struct Entry : TableEntry {
    const S* values;
    constexpr bool all_fit_packs() const { return fits_packs(0, values); }
  };
  TensorTable<Entry, 96> table;
  double* partials;

  constexpr std::int64_t blocks() const { return table.blocks; }
  constexpr std::size_t shared_bytes() const { return threads * sizeof(double); }

  template <Block B>
  constexpr void operator()(B& block) const {
    const auto [entry, begin, end] = table.work_of(block.index());
    double mine = 0;
    for_each_in_range<S>(block, begin, end, entry.packs,
                         [&, &entry = entry](std::int64_t i, auto width) {
                           const auto x = load_floats<width.value>(entry.values + i);
                           for (int k = 0; k < width.value; ++k)
                             mine += static_cast<double>(x.at[k]) * static_cast<double>(x.at[k]);
                         });
    const double all = sum_in_shared(block, mine);
    if (block.thread() == 0) partials[block.index()] = all;
  }
};

}  // namespace ringside::autograd::cuda
