// rms_norm on a GPU: a block for each row. ops/rms_norm.cpp has the formulas.
//
//     RmsNorm           reads x and writes y; reads each row twice, the second time from cache
//     RmsNormBackward   reads dy and x and writes dx; each block sums dw over its own rows
//     ColumnSums        adds up the dw of all blocks, a thread for each column
#pragma once

#include "autograd/kernels/block/block.hpp"

namespace ringside::autograd::cuda {

// x [rows, n], w [n] -> y [rows, n] = x r w, r [rows] = 1 / sqrt(mean(x^2) + eps). With a residual
// [rows, n] it normalises x + residual instead, and writes that to sum. A block takes every
// count()-th row.
template <class S>
struct RmsNorm {
  static constexpr int threads = 256;
  const S *x, *residual, *w;  // residual may be nullptr
  S *sum, *y;                 // sum is used with a residual only
  float* r;
  std::int64_t rows, n;
  float eps;
  bool packs;  // fits_packs(n, ...) of all tensors

  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    for (std::int64_t row = block.index(); row < rows; row += block.count()) {
      const S* const normed = residual ? sum + row * n : x + row * n;
      float squares = 0;
      for_each<S>(block, n, packs, [&](std::int64_t i, auto width) {
        auto xi = load_floats<width.value>(x + row * n + i);
        if (residual) {
          const auto other = load_floats<width.value>(residual + row * n + i);
          for (int k = 0; k < width.value; ++k) xi.at[k] = float(S(xi.at[k] + other.at[k]));
          store_floats<width.value>(sum + row * n + i, xi);
        }
        for (int k = 0; k < width.value; ++k) squares += xi.at[k] * xi.at[k];
      });
      const float factor = 1 / B::sqrt(block.sum(squares) / static_cast<float>(n) + eps);
      if (block.thread() == 0) r[row] = factor;
      // A thread reads only what it wrote itself, so no sync() is needed in between.
      for_each<S>(block, n, packs, [&](std::int64_t i, auto width) {
        auto yi = load_floats<width.value>(normed + i);
        const auto wi = load_floats<width.value>(w + i);
        for (int k = 0; k < width.value; ++k) yi.at[k] *= factor * wi.at[k];
        store_floats<width.value>(y + row * n + i, yi);
      });
    }
  }
};

// dy, x [rows, n], w [n], r [rows] -> dx [rows, n] and partials [count(), n]: row b is the sum of
// dy x r over the rows of block b. The rows of a block depend on the number of blocks, so dw has
// the same bits only for the same number of blocks.
template <class S>
struct RmsNormBackward {
  static constexpr int threads = 256;
  const S *dy, *x, *w;
  const float* r;
  S* dx;
  float* partials;
  std::int64_t rows, n;
  bool packs;

  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    float* const partial = partials + block.index() * n;
    for_each<S>(block, n, packs, [&](std::int64_t i, auto width) {
      store_floats<width.value>(partial + i, Floats<width.value>{});
    });
    for (std::int64_t row = block.index(); row < rows; row += block.count()) {
      const S *const dy_row = dy + row * n, *const x_row = x + row * n;
      float dot = 0;
      for_each<S>(block, n, packs, [&](std::int64_t i, auto width) {
        const auto dyi = load_floats<width.value>(dy_row + i),
                   xi = load_floats<width.value>(x_row + i), wi = load_floats<width.value>(w + i);
        for (int k = 0; k < width.value; ++k) dot += dyi.at[k] * wi.at[k] * xi.at[k];
      });
      const float factor = r[row],
                  pull = block.sum(dot) * factor * factor * factor / static_cast<float>(n);
      for_each<S>(block, n, packs, [&](std::int64_t i, auto width) {
        const auto dyi = load_floats<width.value>(dy_row + i),
                   xi = load_floats<width.value>(x_row + i), wi = load_floats<width.value>(w + i);
        auto dwi = load_floats<width.value>(partial + i);  // always columns of this thread
        Floats<width.value> dxi{};
        for (int k = 0; k < width.value; ++k) {
          dxi.at[k] = dyi.at[k] * wi.at[k] * factor - xi.at[k] * pull;
          dwi.at[k] += dyi.at[k] * xi.at[k] * factor;
        }
        store_floats<width.value>(dx + row * n + i, dxi);
        store_floats<width.value>(partial + i, dwi);
      });
    }
  }
};

// partials [rows, n] -> total [n], added row by row. A thread for each column.
template <class S>
struct ColumnSums {
  static constexpr int threads = 256;
  const float* partials;
  S* total;
  std::int64_t rows, n;

  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    const std::int64_t step = block.count() * block.threads();
    for (std::int64_t i = block.index() * block.threads() + block.thread(); i < n; i += step) {
      float all = 0;
      for (std::int64_t line = 0; line < rows; ++line) all += partials[line * n + i];
      total[i] = S(all);
    }
  }
};

}  // namespace ringside::autograd::cuda
