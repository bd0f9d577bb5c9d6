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
//     forward           43, 90   55, 126  79, 163         63, 80   87, 168  135, 222
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
  // What a block works on: its queries, the keys that they see, and its shared memory.
  struct Work {
    AttentionTile at;
    std::int64_t kv_head, end;  // keys 0 .. end-1 of this head
    Rows q;
    Keys k, v;
    Scores s;
    Probabilities p;
    RowState previous, current;
    float* factors;  // of each row: what its sums over the tiles before are multiplied by
  };

  template <TileBlock B>
  constexpr void operator()(B& block) const {
    const AttentionTile at = attention_tile(block.index(), sizes.tiles_of(sizes.queries, rows),
                                            sizes.heads, sizes.batch, true);
    const std::int64_t seen = at.first + rows + sizes.offset();
    SharedAllocator shared(block.shared());
    Work work{at,
              at.h / sizes.group(),
              seen < sizes.keys ? seen : sizes.keys,
              shared.tile<T, rows, d>(),
              shared.tile<T, keys, d>(),
              shared.tile<T, keys, d>(),
              shared.tile<float, rows, keys>(),
              shared.tile<T, rows, keys>(),
              {shared.array<float, rows>(), shared.array<float, rows>()},
              {shared.array<float, rows>(), shared.array<float, rows>()},
              shared.array<float, rows>()};
    load_tile_async(block, work.q,
                    head_view(q, at.b, at.h, at.first, sizes.queries, sizes.head_size));
    load_keys(block, work, work.k, k, 0);
    block.commit_copies();
    for (int row = block.thread(); row < rows; row += block.threads()) {
      work.previous.largest[row] = -std::numeric_limits<float>::infinity();
      work.previous.total[row] = 0;
    }
    typename B::template Accumulator<T, rows, d> output(block);
    for (std::int64_t key = 0; key < work.end; key += keys) take_tile(block, work, key, output);
    finish(block, work, output);
  }

 private:
  // Starts to load a tile of k or v, from row `key` on.
  template <TileBlock B>
  constexpr void load_keys(B& block, const Work& work, const Keys& tile,
                           const Heads<const T>& heads, std::int64_t key) const {
    load_tile_async(block, tile,
                    head_view(heads, work.at.b, work.kv_head, key, sizes.keys, sizes.head_size));
  }

  // Adds the keys from `key` on to the sums of all rows: their number is `keys`, or what is left up
  // to work.end. Their copy to work.k has begun; this function begins that of the next ones.
  template <TileBlock B, class Output>
  constexpr void take_tile(B& block, Work& work, std::int64_t key, Output& output) const {
    block.wait_copies(0);
    block.sync();  // q and k are loaded; v and p of the previous tile are no longer in use
    load_keys(block, work, work.v, v, key);
    block.commit_copies();
    score(block, work, diagonal_in_tile(work.at.first + sizes.offset() + 1 - key));
    block.sync();  // the scores are written; k is no longer in use
    if (key + keys < work.end) load_keys(block, work, work.k, k, key + keys);
    block.commit_copies();
    softmax(block, work);
    block.wait_copies(1);
    block.sync();  // v is loaded; p and the factors are written
    output.for_each([&](int row, int, float& x) { x *= work.factors[row]; });
    output.add_product(work.p, work.v);
    const RowState old = work.previous;
    work.previous = work.current, work.current = old;
  }

  // Divides the output by the sums of the rows and stores it, and the logarithms of the sums. Since
  // the last sync() no thread reads q or `current`, so they are reused for the result.
  template <TileBlock B, class Output>
  constexpr void finish(B& block, const Work& work, Output& output) const {
    const auto [b, h, first] = work.at;
    for (int row = block.thread(); row < rows; row += block.threads()) {
      work.current.total[row] = 1 / work.previous.total[row];
      if (first + row < sizes.queries)
        log_sums[(b * sizes.heads + h) * sizes.queries + first + row] =
            work.previous.largest[row] + B::log(work.previous.total[row]);
    }
    block.sync();
    output.for_each([&](int row, int column, float& x) {
      work.q(row, column) = T(x * work.current.total[row]);
    });
    block.sync();
    store_tile(block, work.q, head_view(y, b, h, first, sizes.queries, sizes.head_size));
  }

  // Writes the scores of one tile. A row sees the columns before row + diagonal; the scores of the
  // others are -infinity, so that their exp is 0.
  template <TileBlock B>
  constexpr void score(B& block, const Work& work, int diagonal) const {
    typename B::template Accumulator<T, rows, keys> products(block);
    products.add_product(work.q, transposed(work.k));
    products.for_each([&](int row, int column, float& x) {
      work.s(row, column) =
          column < row + diagonal ? x * scale : -std::numeric_limits<float>::infinity();
    });
  }

  // p = exp(score - maximum so far), and for each row the factor that scales the sums of the tiles
  // before. Every row sees key 0, so the maximum is finite from the first tile on.
  template <TileBlock B>
  constexpr void softmax(B& block, const Work& work) const {
    const RowState &previous = work.previous, &current = work.current;
    for_each_row(block, rows, [&](int row, const auto& group) {
      float largest = previous.largest[row];
      for (int column = group.index(); column < keys; column += group.count()) {
        const float x = work.s(row, column);
        largest = largest < x ? x : largest;
      }
      largest = group.max(largest);
      float total = 0;
      for (int column = group.index(); column < keys; column += group.count()) {
        const float p = B::exp(work.s(row, column) - largest);
        total += p;
        work.p(row, column) = T(p);
      }
      total = group.sum(total);
      if (group.index() != 0) return;
      const float factor = B::exp(previous.largest[row] - largest);
      work.factors[row] = factor;
      current.largest[row] = largest;
      current.total[row] = previous.total[row] * factor + total;
    });
  }
};

}  // namespace ringside::autograd::cuda
