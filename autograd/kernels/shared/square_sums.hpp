// Sums over all of a tensor, or of many, in fp64 and always in the same order: each block adds up
// its part, then one block what they have found (Total). No atomics, so the same launch gives the
// same bits.
#pragma once

#include "autograd/kernels/block/block.hpp"
#include "autograd/kernels/block/slices.hpp"

namespace ringside::autograd::cuda {

// The sum of what each thread of the block says, for thread 0, in a tree. Takes 8 bytes of shared
// memory for each thread.
//
//     said:   0  1  2  3  4  5  6        half of them, rounded up, is 4: the first 3 add the last 3
//             04 15 26 3
//             all
template <Block B>
constexpr double sum_in_shared(B& block, double x) {
  double* const said = reinterpret_cast<double*>(block.shared());
  said[block.thread()] = x;
  for (int left = block.threads(); left > 1;) {
    const int half = (left + 1) / 2;
    block.sync();
    if (block.thread() < left - half) said[block.thread()] += said[block.thread() + half];
    left = half;
  }
  return said[0];
}

// numbers [count] -> total = their sum times factor. For one block.
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

// Sums of squares of many tensors: parts [blocks()], of each block its own, to be added up by
// Total. Reads each number once: 4 bytes, of bf16 2.
template <class S>
struct SquareSums {
  static constexpr int threads = 256;
  struct Part : SlicePlace {
    const S* numbers;
    constexpr bool on_packs() const { return in_packs(0, numbers); }
  };
  Slices<Part, 96> slices;
  double* parts;

  constexpr std::int64_t blocks() const { return slices.blocks; }
  constexpr std::size_t shared_bytes() const { return threads * sizeof(double); }

  template <Block B>
  constexpr void operator()(B& block) const {
    const auto [part, begin, end] = slices.share_of(block.index());
    double mine = 0;
    for_each_from<S>(block, begin, end, part.packs, [&](std::int64_t i, auto width) {
      const auto x = widened<width.value>(part.numbers + i);
      for (int k = 0; k < width.value; ++k)
        mine += static_cast<double>(x.at[k]) * static_cast<double>(x.at[k]);
    });
    const double all = sum_in_shared(block, mine);
    if (block.thread() == 0) parts[block.index()] = all;
  }
};

}  // namespace ringside::autograd::cuda
