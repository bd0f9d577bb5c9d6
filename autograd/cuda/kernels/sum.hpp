// From many numbers to one, in two launches: each block says what its tiles come to, and one block adds up what they said.
#pragma once

#include "autograd/cuda/kernels/elementwise.hpp"

namespace ringside::autograd::cuda {

// x [n] -> parts [count()]: the sum of x, or of its squares, over the tiles of each block. A thread adds in fp64, of which there are few.
template <class S, bool squares>
struct SumParts {
  static constexpr int threads = 256;
  const S* x;
  float* parts;
  std::int64_t n;
  bool packs;

  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    double mine = 0;
    for_each_in_tiles<S>(block, n, packs, [&](std::int64_t i, auto width) {
      const auto xi = widened<width.value>(x + i);
      for (int k = 0; k < width.value; ++k) mine += squares ? static_cast<double>(xi.at[k]) * static_cast<double>(xi.at[k]) : static_cast<double>(xi.at[k]);
    });
    const float all = block.sum(static_cast<float>(mine));
    if (block.thread() == 0) parts[block.index()] = all;
  }
};

// total = factor times the sum of parts [lines]. One block.
template <class S>
struct SumOfParts {
  static constexpr int threads = 256;
  const float* parts;
  S* total;
  std::int64_t lines;
  float factor;

  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    float mine = 0;
    for (std::int64_t i = block.thread(); i < lines; i += block.threads()) mine += parts[i];
    const float all = block.sum(mine);
    if (block.thread() == 0) *total = S(factor * all);
  }
};

}  // namespace ringside::autograd::cuda
