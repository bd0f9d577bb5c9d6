// embedding on a GPU: forward, a block for each token; backward, a block for each piece of a run.
//
// Tokens with the same id add to the same row of the gradient. Atomic additions would add them in
// an order that changes from run to run. So the host, which has the ids anyway, sorts them: equal
// ids form a run. A frequent id has a long run, which one block would sum slowly. So a run is cut
// into pieces where a stretch of 32 tokens ends, and a second kernel adds up its pieces:
//
//     ids        3 1 3 0 1 3            with stretches of two tokens:
//     sorted     0 1 | 1 3 | 3 3        0: one piece, written to the gradient
//     of         3 1 | 4 0 | 2 5        1: pieces {1} and {4}      3: pieces {0} and {2, 5}
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

// The ids of all tokens in ascending order, and the token that each comes from; in stretches of 32.
struct SortedTokens {
  static constexpr std::int64_t stretch = 32;
  const std::int32_t *ids, *of;  // [tokens]
  std::int64_t tokens;

  constexpr std::int64_t stretches() const { return (tokens + stretch - 1) / stretch; }
  constexpr bool begins_run(std::int64_t i) const { return i == 0 || ids[i - 1] != ids[i]; }
  constexpr bool begins_piece(std::int64_t i) const { return i % stretch == 0 || begins_run(i); }

  // The first token after the run that token i is in, by bisection.
  constexpr std::int64_t end_of_run(std::int64_t i) const {
    std::int64_t inside = i, after = tokens;
    while (after - inside > 1) {
      const std::int64_t middle = (inside + after) / 2;
      (ids[middle] == ids[i] ? inside : after) = middle;
    }
    return after;
  }
};

// dy [tokens, n] -> dw [V, n], only the rows whose ids occur, and partials [stretches, 2, n]. Sums
// the pieces: what a stretch has of a run. A piece that is a whole run goes to dw. Of a longer run
// the first piece is in partials[s, 1], the others are in partials[s, 0].
template <class S>
struct EmbeddingBackward {
  static constexpr int threads = 128;
  SortedTokens sorted;
  const S* dy;
  S* dw;
  float* partials;
  std::int64_t n;
  bool packs;

  template <Block B>
  constexpr void operator()(B& block) const {
    for (std::int64_t begin = block.index(); begin < sorted.tokens; begin += block.count()) {
      if (!sorted.begins_piece(begin)) continue;
      std::int64_t end = begin + 1;
      while (end < sorted.tokens && !sorted.begins_piece(end)) ++end;
      const bool begins = sorted.begins_run(begin),
                 ends = end == sorted.tokens || sorted.begins_run(end);
      S* const row = dw + sorted.ids[begin] * n;
      float* const partial = partials + (begin / SortedTokens::stretch * 2 + begins) * n;
      for_each<S>(block, n, packs, [&](std::int64_t i, auto width) {
        Floats<width.value> total{};
        for (std::int64_t t = begin; t < end; ++t) {
          const auto dyi = load_floats<width.value>(dy + sorted.of[t] * n + i);
          for (int k = 0; k < width.value; ++k) total.at[k] += dyi.at[k];
        }
        if (begins && ends)
          store_floats<width.value>(row + i, total);
        else
          store_floats<width.value>(partial + i, total);
      });
    }
  }
};

// partials -> the rows of dw whose runs have several pieces: one block for the stretch in which
// such a run begins. It ends in a later stretch, so a stretch has at most one.
template <class S>
struct EmbeddingPartialSums {
  static constexpr int threads = 128;
  SortedTokens sorted;
  const float* partials;
  S* dw;
  std::int64_t n;
  bool packs;

  template <Block B>
  constexpr void operator()(B& block) const {
    for (std::int64_t s = block.index(); s < sorted.stretches(); s += block.count()) {
      const std::int64_t next = (s + 1) * SortedTokens::stretch;
      if (next >= sorted.tokens || sorted.begins_run(next)) continue;  // no run goes on
      const std::int32_t id = sorted.ids[next];
      const std::int64_t here = s * SortedTokens::stretch;
      if (sorted.ids[here] == id && !sorted.begins_run(here)) continue;  // begins before
      const std::int64_t last = (sorted.end_of_run(next) - 1) / SortedTokens::stretch;
      for_each<S>(block, n, packs, [&](std::int64_t i, auto width) {
        auto total = load_floats<width.value>(partials + (2 * s + 1) * n + i);
        for (std::int64_t piece = s + 1; piece <= last; ++piece) {
          const auto more = load_floats<width.value>(partials + 2 * piece * n + i);
          for (int k = 0; k < width.value; ++k) total.at[k] += more.at[k];
        }
        store_floats<width.value>(dw + id * n + i, total);
      });
    }
  }
};

}  // namespace ringside::autograd::cuda
