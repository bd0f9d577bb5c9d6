// rms_norm on a GPU. kernels/cpu/rms_norm.cpp has the formulas.
//
//     RmsNorm           a warp or a block for each row; reads it twice, the second time from cache
//     RmsNormBackward   a warp or a block for each row of dy, x and dx; each block sums dw over its
//                       own rows
//     ColumnSums        adds up the dw of all blocks
#pragma once

#include "autograd/kernels/block/tiles.hpp"

namespace ringside::autograd::cuda {

// x [rows, n], w [n] -> y [rows, n] = x r w, r [rows] = 1 / sqrt(mean(x^2) + eps). With a residual
// [rows, n] it normalises x + residual instead, and writes that to sum. A group
// of threads takes a row: a warp or the block.
template <class S, int size_of_group>
struct RmsNorm {
  static constexpr int threads = 256, group_size = size_of_group;
  using Element = S;

  const S *x, *residual, *w;  // residual may be nullptr
  S *sum, *y;                 // sum is used with a residual only
  float* r;
  std::int64_t rows, n;
  float eps;
  bool packs;  // fits_packs(n, ...) of all tensors

  template <TileBlock B>
  constexpr void operator()(B& block) const {
    packs ? take_rows<Pack<S>::size>(block) : take_rows<1>(block);
  }

 private:
  template <int pack, TileBlock B>
  constexpr void take_rows(B& block) const {
    const typename B::template RowGroup<group_size> group(block);
    const int groups = block.threads() / group.count(), own = block.thread() / group.count(),
              first = group.index() * pack, step = group.count() * pack;
    for (std::int64_t row = block.index() * groups + own; row < rows;
         row += block.count() * groups) {
      const S* const normed = (residual ? sum : x) + row * n;
      float squares = 0;
      for (std::int64_t i = first; i < n; i += step) {
        auto xi = load_floats<pack>(x + row * n + i);
        if (residual) {
          const auto other = load_floats<pack>(residual + row * n + i);
          for (int k = 0; k < pack; ++k) xi.at[k] = float(S(xi.at[k] + other.at[k]));
          store_floats<pack>(sum + row * n + i, xi);
        }
        for (int k = 0; k < pack; ++k) squares += xi.at[k] * xi.at[k];
      }
      const float factor = 1 / B::sqrt(group.sum(squares) / static_cast<float>(n) + eps);
      if (group.index() == 0) r[row] = factor;
      // A thread reads only what it wrote itself, so no sync() is needed in between.
      for (std::int64_t i = first; i < n; i += step) {
        auto yi = load_floats<pack>(normed + i);
        const auto wi = load_floats<pack>(w + i);
        for (int k = 0; k < pack; ++k) yi.at[k] *= factor * wi.at[k];
        store_floats<pack>(y + row * n + i, yi);
      }
    }
  }
};

// dy, x [rows, n], w [n], r [rows] -> dx [rows, n] and partials [count(), width()]: line b is the
// sum of dy x r over the rows of block b. A launch computes the columns from `first` on, at most
// columns() of them, and reads all columns of every row. The rows of a block depend on the number
// of blocks, so dw has the same bits only for the same number of blocks.
//
// A group of threads takes a row: a warp or the block. A thread keeps its 64 bytes of dy and of x
// between the two passes over the row, so each is read once; and it keeps the sums of its columns
// of dw until the block has no more rows:
//
//     column     0..7    8..15  ...  248..255    256..263  ...      bf16, packs of 8
//     thread     0       1           31          0
template <class S, int size_of_group>
struct RmsNormBackward {
  static constexpr int threads = 256, group_size = size_of_group;
  using Element = S;

  static constexpr int blocks_at_once =
      sizeof(S) == 4 ? 3 : 2;  // of a multiprocessor: 80, 128 registers

  // Elements that a thread keeps of a row: in packs, and one by one, where each takes more
  // registers for addresses.
  static constexpr int held_in_packs = 64 / sizeof(S), held_alone = 8;
  static constexpr std::int64_t columns_of(bool packs) {
    return (packs ? held_in_packs : held_alone) * group_size;
  }

  const S *dy, *x, *w;
  const float* r;
  S* dx;
  float* partials;
  std::int64_t rows, n, first;
  bool packs;

  constexpr std::int64_t columns() const { return columns_of(packs); }
  constexpr std::int64_t width() const { return n - first < columns() ? n - first : columns(); }
  constexpr std::size_t shared_bytes() const {
    return static_cast<std::size_t>(columns()) * sizeof(float);
  }

  template <TileBlock B>
  constexpr void operator()(B& block) const {
    packs ? take_rows<Pack<S>::size>(block) : take_rows<1>(block);
  }

 private:
  template <int pack, TileBlock B>
  constexpr void take_rows(B& block) const {
    using Group = typename B::template RowGroup<group_size>;
    constexpr int pieces = static_cast<int>(columns_of(pack > 1)) / Group::size / pack;
    const Group group(block);
    const int groups = block.threads() / group.count(), own = block.thread() / group.count();
    const auto column = [&](int piece) {
      return std::int64_t{piece * Group::size + group.index()} * pack;  // counted from `first`
    };
    Floats<pack> dw[pieces]{};
    for (std::int64_t row = block.index() * groups + own; row < rows;
         row += block.count() * groups) {
      Elements<S, pack> dy_row[pieces]{}, x_row[pieces]{};
      float dot = dot_of_other_columns<pack>(row, group);
      unrolled<pieces>([&](int piece) {
        const std::int64_t i = first + column(piece);
        if (i >= n) return;
        dy_row[piece] = load_elements<pack>(dy + row * n + i);
        x_row[piece] = load_elements<pack>(x + row * n + i);
        const auto dyi = floats_of(dy_row[piece]), xi = floats_of(x_row[piece]),
                   wi = load_floats<pack>(w + i);
        for (int k = 0; k < pack; ++k) dot += dyi.at[k] * wi.at[k] * xi.at[k];
      });
      const float factor = r[row],
                  pull = group.sum(dot) * factor * factor * factor / static_cast<float>(n);
      unrolled<pieces>([&](int piece) {
        const std::int64_t i = first + column(piece);
        if (i >= n) return;
        const auto dyi = floats_of(dy_row[piece]), xi = floats_of(x_row[piece]),
                   wi = load_floats<pack>(w + i);
        Floats<pack> dxi{};
        for (int k = 0; k < pack; ++k) {
          dxi.at[k] = dyi.at[k] * wi.at[k] * factor - xi.at[k] * pull;
          dw[piece].at[k] += dyi.at[k] * xi.at[k] * factor;
        }
        store_floats<pack>(dx + row * n + i, dxi);
      });
    }
    // The groups add their sums to the block's line, one after the other.
    float* const line = reinterpret_cast<float*>(block.shared());
    for (int turn = 0; turn < groups; ++turn) {
      if (own == turn)
        unrolled<pieces>([&](int piece) {
          for (int k = 0; k < pack; ++k) {
            float& sum = line[column(piece) + k];
            sum = turn == 0 ? dw[piece].at[k] : sum + dw[piece].at[k];
          }
        });
      block.sync();
    }
    for (std::int64_t i = block.thread(); i < width(); i += block.threads())
      partials[block.index() * width() + i] = line[i];
  }

  // The part of the dot product of dy w and x that no thread keeps: of columns before `first`, and
  // from first + width() on. A row of at most columns() columns has none.
  template <int pack, class Group>
  constexpr float dot_of_other_columns(std::int64_t row, const Group& group) const {
    float dot = 0;
    for (std::int64_t j = std::int64_t{group.index()} * pack; j < n - width();
         j += std::int64_t{group.count()} * pack) {
      const std::int64_t i = j < first ? j : j + width();
      const auto dyi = load_floats<pack>(dy + row * n + i), xi = load_floats<pack>(x + row * n + i),
                 wi = load_floats<pack>(w + i);
      for (int k = 0; k < pack; ++k) dot += dyi.at[k] * wi.at[k] * xi.at[k];
    }
    return dot;
  }
};

// partials [lines, n] -> total [n]: the sum of the lines. A block takes 8 columns at a time: a
// sector of each line, and with more columns most of a GPU would have no block. Its threads stand
// in `down` rows of 8 and add every down-th line; a tree adds their sums.
template <class S>
struct ColumnSums {
  static constexpr int threads = 256, across = 8;
  const float* partials;
  S* total;
  std::int64_t lines, n;

  constexpr std::size_t shared_bytes() const { return threads * sizeof(float); }

  template <Block B>
  constexpr void operator()(B& block) const {
    float* const sums = reinterpret_cast<float*>(block.shared());
    const int columns = block.threads() < across ? block.threads() : across,
              down = block.threads() / columns, column = block.thread() % columns,
              row = block.thread() / columns;
    for (std::int64_t first = block.index() * columns; first < n;
         first += block.count() * columns) {
      const std::int64_t i = first + column;
      float mine = 0;
      for (std::int64_t line = row; row < down && i < n && line < lines; line += down)
        mine += partials[line * n + i];
      sums[block.thread()] = mine;
      for (int left = down; left > 1;) {
        const int half = (left + 1) / 2;
        block.sync();
        if (row < left - half)
          sums[row * columns + column] += sums[(row + half) * columns + column];
        left = half;
      }
      if (row == 0 && i < n) total[i] = S(sums[column]);
      block.sync();  // the sums are in use until here
    }
  }
};

}  // namespace ringside::autograd::cuda
