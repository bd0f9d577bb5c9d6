// embedding on a GPU: a block for each token forward, and for each id that was used backward.
//
// Two tokens may have the same id, and then both add to the same row of the gradient. Atomic
// additions would do it in an order that changes from run to run. So the host, which has the ids
// anyway, sorts them: the tokens of one id are neighbours, in their order, and one block adds them.
//
//     ids             3 1 3 0 1 3
//     sorted          0 1 1 3 3 3      a run of equal ids is the work of the block that meets its beginning
//     of token        3 1 4 0 2 5
#pragma once

#include "autograd/kernels/block/block.hpp"

namespace ringside::autograd::cuda {

// ids [tokens], w [V, n] -> y [tokens, n]
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
      const S* const row = w + ids[t] * n;
      for_each<S>(block, n, packs, [&](std::int64_t i, auto width) {
        narrow_into<width.value>(y + t * n + i, widened<width.value>(row + i));
      });
    }
  }
};

// dy [tokens, n] -> the rows of dw [V, n] whose id is among the sorted ones; the others stay as
// they are.
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
        Lanes<width.value> total{};
        for (std::int64_t t = begin; t < end; ++t) {
          const auto dyi = widened<width.value>(dy + of_token[t] * n + i);
          for (int k = 0; k < width.value; ++k) total.at[k] += dyi.at[k];
        }
        narrow_into<width.value>(dw + id * n + i, total);
      });
    }
  }
};

}  // namespace ringside::autograd::cuda
