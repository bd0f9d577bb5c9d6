// embedding on a GPU: forward, a block for each token; backward, a block for each id in use.
//
// Tokens with the same id add to the same row of the gradient. Atomic additions would add them in
// an order that changes from run to run. So the host, which has the ids anyway, sorts them, and one
// block sums all tokens of an id in their order:
//
//     ids          3 1 3 0 1 3
//     sorted       0 1 1 3 3 3      the block that finds the first of equal ids sums the run
//     of_token     3 1 4 0 2 5      the token that each sorted id comes from
#pragma once

#include "autograd/kernels/block/block.hpp"

namespace ringside::autograd::cuda {

// ids [tokens], w [V, n] -> y [tokens, n]; a row of zeros for id -1
template <class S>
struct Embedding {
  static constexpr int threads = 128;
  const std::int32_t* ids;
  const S* w;
  S* y;
  std::int64_t tokens, n;
  bool packs;

  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    for (std::int64_t t = block.index(); t < tokens; t += block.count()) {
      const std::int32_t id = ids[t];
      for_each<S>(block, n, packs, [&](std::int64_t i, auto width) {
        Floats<width.value> row{};
        if (id >= 0) row = load_floats<width.value>(w + id * n + i);
        store_floats<width.value>(y + t * n + i, row);
      });
    }
  }
};

// dy [tokens, n] -> dw [V, n]. Writes the rows whose ids occur, and no others.
template <class S>
struct EmbeddingBackward {
  static constexpr int threads = 128;
  const std::int32_t *sorted, *of_token;  // [tokens]
  const S* dy;
  S* dw;
  std::int64_t tokens, n;
  bool packs;

  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    for (std::int64_t begin = block.index(); begin < tokens; begin += block.count()) {
      const std::int32_t id = sorted[begin];
      if (begin > 0 && sorted[begin - 1] == id) continue;
      std::int64_t end = begin + 1;
      while (end < tokens && sorted[end] == id) ++end;
      for_each<S>(block, n, packs, [&](std::int64_t i, auto width) {
        Floats<width.value> total{};
        for (std::int64_t t = begin; t < end; ++t) {
          const auto dyi = load_floats<width.value>(dy + of_token[t] * n + i);
          for (int k = 0; k < width.value; ++k) total.at[k] += dyi.at[k];
        }
        store_floats<width.value>(dw + id * n + i, total);
      });
    }
  }
};

}  // namespace ringside::autograd::cuda
