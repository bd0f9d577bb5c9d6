// rms_norm on a GPU: a block for each row. The formulas are those of ops/rms_norm.cpp.
//
//     forward    reads x, writes y                  the second look at a row of x is in cache
//     backward   reads dy and x, writes dx; and what each block's rows add to dw, a line of `parts`
//     the rest   adds up the lines of `parts`, a thread for each column
#pragma once

#include "autograd/kernels/block/block.hpp"

namespace ringside::autograd::cuda {

// x, y [rows, n], w [n] -> y = x r w, r [rows] = 1 / sqrt(mean(x^2) + eps). With a residual [rows,
// n], x + residual is normed, and written to sum. A block takes every count()-th row.
template <class S>
struct RmsNorm {
  static constexpr int threads = 256;
  const S *x, *residual, *w;  // residual: or nullptr
  S *sum, *y;                 // sum: with a residual only
  float* r;
  std::int64_t rows, n;
  float eps;
  bool packs;  // in_packs(n, all of them)

  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    for (std::int64_t row = block.index(); row < rows; row += block.count()) {
      const S* const normed = residual ? sum + row * n : x + row * n;
      float squares = 0;
      for_each<S>(block, n, packs, [&](std::int64_t i, auto width) {
        auto xi = widened<width.value>(x + row * n + i);
        if (residual) {
          const auto other = widened<width.value>(residual + row * n + i);
          for (int k = 0; k < width.value; ++k) xi.at[k] = float(S(xi.at[k] + other.at[k]));
          narrow_into<width.value>(sum + row * n + i, xi);
        }
        for (int k = 0; k < width.value; ++k) squares += xi.at[k] * xi.at[k];
      });
      const float factor = 1 / B::sqrt(block.sum(squares) / static_cast<float>(n) + eps);
      if (block.thread() == 0) r[row] = factor;
      // Every thread reads of `normed` what it wrote itself, so no sync is needed between.
      for_each<S>(block, n, packs, [&](std::int64_t i, auto width) {
        auto yi = widened<width.value>(normed + i);
        const auto wi = widened<width.value>(w + i);
        for (int k = 0; k < width.value; ++k) yi.at[k] *= factor * wi.at[k];
        narrow_into<width.value>(y + row * n + i, yi);
      });
    }
  }
};

// dy, x [rows, n], w [n], r [rows] -> dx [rows, n], and parts [count(), n]: line b has the sum over
// block b's rows of dy x r. Which rows a block takes depends on how many blocks there are, so dw is
// the same bits only for the same number.
template <class S>
struct RmsNormBackward {
  static constexpr int threads = 256;
  const S *dy, *x, *w;
  const float* r;
  S* dx;
  float* parts;
  std::int64_t rows, n;
  bool packs;

  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    float* const part = parts + block.index() * n;
    for_each<S>(block, n, packs, [&](std::int64_t i, auto width) {
      narrow_into<width.value>(part + i, Lanes<width.value>{});
    });
    for (std::int64_t row = block.index(); row < rows; row += block.count()) {
      const S *const dy_row = dy + row * n, *const x_row = x + row * n;
      float dot = 0;
      for_each<S>(block, n, packs, [&](std::int64_t i, auto width) {
        const auto dyi = widened<width.value>(dy_row + i), xi = widened<width.value>(x_row + i),
                   wi = widened<width.value>(w + i);
        for (int k = 0; k < width.value; ++k) dot += dyi.at[k] * wi.at[k] * xi.at[k];
      });
      const float factor = r[row],
                  pull = block.sum(dot) * factor * factor * factor / static_cast<float>(n);
      for_each<S>(block, n, packs, [&](std::int64_t i, auto width) {
        const auto dyi = widened<width.value>(dy_row + i), xi = widened<width.value>(x_row + i),
                   wi = widened<width.value>(w + i);
        auto dwi = widened<width.value>(part + i);  // this thread's own columns, row after row
        Lanes<width.value> dxi{};
        for (int k = 0; k < width.value; ++k) {
          dxi.at[k] = dyi.at[k] * wi.at[k] * factor - xi.at[k] * pull;
          dwi.at[k] += dyi.at[k] * xi.at[k] * factor;
        }
        narrow_into<width.value>(dx + row * n + i, dxi);
        narrow_into<width.value>(part + i, dwi);
      });
    }
  }
};

// parts [lines, n] -> total [n], added line after line. A thread for each column.
template <class S>
struct SumOfLines {
  static constexpr int threads = 256;
  const float* parts;
  S* total;
  std::int64_t lines, n;

  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    const std::int64_t step = block.count() * block.threads();
    for (std::int64_t i = block.index() * block.threads() + block.thread(); i < n; i += step) {
      float all = 0;
      for (std::int64_t line = 0; line < lines; ++line) all += parts[line * n + i];
      total[i] = S(all);
    }
  }
};

}  // namespace ringside::autograd::cuda
