// The sum of a tensor: each block adds up its tiles, then one block what they have found (Total in
// square_sums.hpp).
#pragma once

#include "autograd/kernels/shared/elementwise.hpp"

namespace ringside::autograd::cuda {

// x [n] -> parts [count()]: the sum over the tiles of each block. A thread adds in fp64, of which
// there are few.
template <class S>
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
      for (int k = 0; k < width.value; ++k) mine += static_cast<double>(xi.at[k]);
    });
    const float all = block.sum(static_cast<float>(mine));
    if (block.thread() == 0) parts[block.index()] = all;
  }
};

}  // namespace ringside::autograd::cuda
