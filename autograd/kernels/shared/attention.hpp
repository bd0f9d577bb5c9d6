// causal_attention on a GPU: y = softmax(q k^T / sqrt(D)) v, without a T x T matrix in memory. This
// file has what all its kernels share, and the forward kernel; attention_backward.hpp has the
// others.
//
// After Dao, "FlashAttention-2" (2023). A block keeps one tile of 64 queries in shared memory and
// loops over tiles of keys up to the diagonal. Softmax needs the maximum and the sum of a row,
// which are known only after the last tile. So it uses the maximum of the keys so far; when a tile
// has a larger score, everything summed before is scaled down (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018).
//
//            keys -->
//         q +---+                    kernel      one block for each    computes
//         u | \ |                    forward     row of tiles          S = Q K^T, P = exp(S - max),
//         e +---+---+                                                  Y = factor Y + P V
//         r | # | \ |                delta       128 rows of Y         D_i = dY_i . Y_i
//         i +---+---+---+            keys        column of tiles       dV = P^T dY,
//         e | # | # | \ |                                              dK = (P (dP - D))^T Q
//         s +---+---+---+            queries     row of tiles          dQ = P (dP - D) K
//
// Backward recomputes P from q, k and the saved logarithm of each row's sum, twice: once by columns
// and once by rows. So one block computes each number, with its sums in one order: no atomics, and
// the same bits on every run.
//
// Elements are T (float or Bf16); products and softmax are fp32. D is padded with zeros to 32, 64
// or 128 (with_padded_head_size). Asynchronous copies load the next tiles while the current ones
// are multiplied.
//
// Resources, as "KiB of shared memory per block, registers per thread" (compiled for sm_90, no
// spills). An SM has 163 KiB (sm_80) or 227 KiB (sm_90) of shared memory for its blocks, and 65536
// registers: 168 per thread allow three blocks of 128 threads on an SM, 255 allow two.
//
//                bf16, D = 32    64     128        fp32, D = 32    64     128
//     forward           43, 80   55, 126  79, 163         63, 80   87, 168  135, 222
//     keys              49, 162  73, 217  79, 238         55, 152  87, 168  151, 248
//     queries           40, 118  64, 155  74, 159         46, 96   78, 114  142, 152
#pragma once

#include <limits>

#include "autograd/kernels/block/tiles.hpp"

namespace ringside::autograd::cuda {

inline constexpr int max_head_size = 128;

// Calls body(Width<d>), d the smallest of 32, 64 and 128 that is at least head_size (1 to
// max_head_size).
template <class Body>
constexpr decltype(auto) with_padded_head_size(int head_size, const Body& body) {
  if (head_size <= 32) return body(Width<32>{});
  if (head_size <= 64) return body(Width<64>{});
  return body(Width<128>{});
}

// The queries are at the last positions of the keys, so keys >= queries.
struct AttentionSizes {
  std::int64_t batch, heads, kv_heads, queries, keys;
  int head_size;

  // Query heads that share a key head.
  constexpr std::int64_t group() const { return heads / kv_heads; }
  // Query i sees keys 0 .. i + offset.
  constexpr std::int64_t offset() const { return keys - queries; }
  constexpr std::int64_t tiles_of(std::int64_t length, int rows) const {
    return (length + rows - 1) / rows;
  }
};

// A tensor [B, H, T, D] whose last stride is 1, as one matrix [T, D] for each head.
template <class T>
struct Heads {
  T* data;
  std::int64_t batch_stride, head_stride, row_stride;  // in elements

  constexpr T* row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return data + b * batch_stride + h * head_stride + i * row_stride;
  }
  constexpr bool fits_packs(int head_size) const {
    constexpr int size = Pack<T>::size;
    return cuda::fits_packs(head_size, data) && batch_stride % size == 0 &&
           head_stride % size == 0 && row_stride % size == 0;
  }
};

// A head from row `first` on; the head has `rows` rows.
template <class T>
constexpr MatrixView<T> head_view(const Heads<T>& heads, std::int64_t b, std::int64_t h,
                                  std::int64_t first, std::int64_t rows, int head_size) {
  return {heads.row(b, h, first), heads.row_stride, rows - first, head_size,
          heads.fits_packs(head_size)};
}

// The tile of 64 rows that a block works on: batch entry, head, first row. Consecutive blocks take
// the same rows of consecutive heads, because these share keys. With `last_first` the last rows are
// taken first: they see the most keys, so the longest blocks start first. Indices are int because a
// GPU divides 64-bit integers slowly.
struct AttentionTile {
  std::int64_t b, h, first;
};
inline constexpr int attention_rows = 64;
constexpr AttentionTile attention_tile(std::int64_t index, std::int64_t tiles, std::int64_t heads,
                                       std::int64_t batch, bool last_first) {
  const int i = static_cast<int>(index), all = static_cast<int>(heads * batch), head = i % all,
            tile = i / all, h = static_cast<int>(heads);
  return {head / h, head % h, (last_first ? tiles - 1 - tile : tile) * attention_rows};
}

// The diagonal relative to a tile: row r of the tile sees columns c < r + diagonal. Clamped so that
// it fits an int; a diagonal outside of the tile acts the same at any distance.
constexpr int diagonal_in_tile(std::int64_t distance) {
  constexpr std::int64_t far = 2 * attention_rows;
  return static_cast<int>(distance < -far ? -far : distance > far ? far : distance);
}

// q [B, H, Tq, D], k, v [B, H_kv, Tk, D] -> y [B, H, Tq, D], log_sums [B, H, Tq]: the logarithm of
// each row's sum of exp(score).
template <class T, int d>
struct AttentionForward {
  static constexpr int threads = tile_threads, rows = attention_rows, keys = 64;
  using Rows = Tile<T, rows, d>;
  using Keys = Tile<T, keys, d>;
  using Scores = Tile<float, rows, keys>;
  using Probabilities = Tile<T, rows, keys>;

  AttentionSizes sizes;
  float scale;  // 1 / sqrt(D)
  Heads<const T> q, k, v;
  Heads<T> y;
  float* log_sums;

  constexpr std::int64_t blocks() const {
    return sizes.batch * sizes.heads * sizes.tiles_of(sizes.queries, rows);
  }
  constexpr std::size_t shared_bytes() const {
    return Rows::bytes + 2 * Keys::bytes + Scores::bytes + Probabilities::bytes +
           5 * rows * sizeof(float);
  }

  // Maximum and sum of each row over the keys so far. There are two copies: while one thread of a
  // group writes the new values, others may still read the previous ones.
  struct RowState {
    float *largest, *total;
  };

  template <TileBlock B>
  constexpr void operator()(B& block) const {
    SharedAllocator shared(block.shared());
    const auto q_tile = shared.tile<T, rows, d>();
    const auto k_tile = shared.tile<T, keys, d>(), v_tile = shared.tile<T, keys, d>();
    const auto s_tile = shared.tile<float, rows, keys>();
    const auto p_tile = shared.tile<T, rows, keys>();
    RowState previous{shared.array<float, rows>(), shared.array<float, rows>()},
        current{shared.array<float, rows>(), shared.array<float, rows>()};
    float* const factors = shared.array<float, rows>();

    const auto [b, h, first] = attention_tile(block.index(), sizes.tiles_of(sizes.queries, rows),
                                              sizes.heads, sizes.batch, true);
    const std::int64_t kv_head = h / sizes.group(), seen = first + rows + sizes.offset(),
                       end = seen < sizes.keys ? seen : sizes.keys;
    load_tile_async(block, q_tile, head_view(q, b, h, first, sizes.queries, sizes.head_size));
    load_tile_async(block, k_tile, head_view(k, b, kv_head, 0, sizes.keys, sizes.head_size));
    block.commit_copies();
    for (int row = block.thread(); row < rows; row += block.threads()) {
      previous.largest[row] = -std::numeric_limits<float>::infinity();
      previous.total[row] = 0;
    }

    typename B::template Accumulator<T, rows, d> output(block);
    for (std::int64_t key = 0; key < end; key += keys) {
      block.wait_copies(0);
      block.sync();  // q and k are loaded; v and p of the previous tile are no longer in use
      load_tile_async(block, v_tile, head_view(v, b, kv_head, key, sizes.keys, sizes.head_size));
      block.commit_copies();
      score(block, q_tile, k_tile, diagonal_in_tile(first + sizes.offset() + 1 - key), s_tile);
      block.sync();  // the scores are written; k is no longer in use
      if (key + keys < end)
        load_tile_async(block, k_tile,
                        head_view(k, b, kv_head, key + keys, sizes.keys, sizes.head_size));
      block.commit_copies();
      softmax(block, s_tile, previous, current, factors, p_tile);
      block.wait_copies(1);
      block.sync();  // v is loaded; p and the factors are written
      output.for_each([&](int row, int, float& x) { x *= factors[row]; });
      output.add_product(p_tile, v_tile);
      const RowState old = previous;
      previous = current, current = old;
    }

    // Since the last sync() no thread reads q_tile or `current`, so they are reused for the result.
    for (int row = block.thread(); row < rows; row += block.threads()) {
      current.total[row] = 1 / previous.total[row];
      if (first + row < sizes.queries)
        log_sums[(b * sizes.heads + h) * sizes.queries + first + row] =
            previous.largest[row] + B::log(previous.total[row]);
    }
    block.sync();
    output.for_each(
        [&](int row, int column, float& x) { q_tile(row, column) = T(x * current.total[row]); });
    block.sync();
    store_tile(block, q_tile, head_view(y, b, h, first, sizes.queries, sizes.head_size));
  }

 private:
  // Writes the scores of one tile. A row sees the columns before row + diagonal; the scores of the
  // others are -infinity, so that their exp is 0.
  template <TileBlock B>
  constexpr void score(B& block, const Rows& q_tile, const Keys& k_tile, int diagonal,
                       const Scores& s_tile) const {
    typename B::template Accumulator<T, rows, keys> products(block);
    products.add_product(q_tile, transposed(k_tile));
    products.for_each([&](int row, int column, float& x) {
      s_tile(row, column) =
          column < row + diagonal ? x * scale : -std::numeric_limits<float>::infinity();
    });
  }

  // p = exp(score - maximum so far), and for each row the factor that scales the sums of the tiles
  // before. Every row sees key 0, so the maximum is finite from the first tile on.
  template <TileBlock B>
  constexpr void softmax(B& block, const Scores& s_tile, const RowState& previous,
                         const RowState& current, float* factors,
                         const Probabilities& p_tile) const {
    for_each_row(block, rows, [&](int row, const auto& group) {
      float largest = previous.largest[row];
      for (int column = group.index(); column < keys; column += group.count()) {
        const float x = s_tile(row, column);
        largest = largest < x ? x : largest;
      }
      largest = group.max(largest);
      float total = 0;
      for (int column = group.index(); column < keys; column += group.count()) {
        const float p = B::exp(s_tile(row, column) - largest);
        total += p;
        p_tile(row, column) = T(p);
      }
      total = group.sum(total);
      if (group.index() != 0) return;
      const float factor = B::exp(previous.largest[row] - largest);
      factors[row] = factor;
      current.largest[row] = largest;
      current.total[row] = previous.total[row] * factor + total;
    });
  }
};

}  // namespace ringside::autograd::cuda
