// causal_attention on a GPU: y = softmax(q k^T / sqrt(D)) v, without a T x T matrix in memory. This
// file has what all its kernels share, and the forward kernel; attention_backward.hpp has the
// others.
//
// After Dao, "FlashAttention-2" (2023). A block keeps one tile of 64 queries in shared memory and
// loops over tiles of keys up to the diagonal. Scores and probabilities stay in registers: on
// tensor cores a warp computes 16 rows of them, and they are its left factor in the product with V.
// Softmax needs the maximum and the sum of a row, which are known only after the last tile. So it
// uses the maximum of the keys so far; when a tile has a larger score, everything summed before is
// scaled down (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
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
// are multiplied, so a block synchronises once for each tile.
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
// each row's sum of exp(score). There are two stages of keys: while the block computes with one,
// the next keys are loaded into the other.
template <class T, int d>
struct AttentionForward {
  // Four fp32 tiles of 64 keys and 128 columns would not fit in shared memory.
  static constexpr int threads = tile_threads, rows = attention_rows,
                       keys = sizeof(T) == 4 && d == 128 ? 32 : 64;
  using Rows = Tile<T, rows, d>;
  using Keys = Tile<T, keys, d>;

  AttentionSizes sizes;
  float scale;  // 1 / sqrt(D)
  Heads<const T> q, k, v;
  Heads<T> y;
  float* log_sums;

  constexpr std::int64_t blocks() const {
    return sizes.batch * sizes.heads * sizes.tiles_of(sizes.queries, rows);
  }
  constexpr std::size_t shared_bytes() const { return Rows::bytes + 4 * Keys::bytes; }

  struct Stage {
    Keys k, v;
  };

  template <TileBlock B>
  constexpr void operator()(B& block) const {
    using Output = typename B::template Accumulator<T, rows, d>;
    SharedAllocator shared(block.shared());
    const auto q_tile = shared.tile<T, rows, d>();
    Stage current = make_stage(shared), next = make_stage(shared);

    const auto [b, h, first] = attention_tile(block.index(), sizes.tiles_of(sizes.queries, rows),
                                              sizes.heads, sizes.batch, true);
    const std::int64_t kv_head = h / sizes.group(), seen = first + rows + sizes.offset(),
                       end = seen < sizes.keys ? seen : sizes.keys;
    const auto prefetch = [&](const Stage& into, std::int64_t key) {
      load_tile_async(block, into.k, head_view(k, b, kv_head, key, sizes.keys, sizes.head_size));
      load_tile_async(block, into.v, head_view(v, b, kv_head, key, sizes.keys, sizes.head_size));
    };
    load_tile_async(block, q_tile, head_view(q, b, h, first, sizes.queries, sizes.head_size));
    prefetch(current, 0);
    block.commit_copies();

    Output output(block);
    // Of each row, over the keys so far: the maximum, and this thread's part of the sum.
    auto largest = PerRow<Output::held_rows>::all(-std::numeric_limits<float>::infinity()),
         total = PerRow<Output::held_rows>::all(0);
    for (std::int64_t key = 0; key < end; key += keys) {
      block.wait_copies(0);
      block.sync();  // the current stage is loaded; the other is no longer in use
      if (key + keys < end) prefetch(next, key + keys);
      block.commit_copies();
      typename B::template Accumulator<T, rows, keys> p(block);
      p.add_product(q_tile, transposed(current.k));
      const auto factors =
          softmax<B>(p, diagonal_in_tile(first + sizes.offset() + 1 - key), largest, total);
      output.for_each([&](ElementAt at, float& x) { x *= factors.at[at.held]; });
      output.add_product(p, current.v);
      const Stage old = current;
      current = next, next = old;
    }

    output.sum_of_rows(total);
    // Each thread reuses its own rows of q_tile for the result.
    output.for_each([&](ElementAt at, float& x) {
      q_tile(at.row, at.column) = T(x / total.at[at.held]);
      if (at.column == 0 && first + at.row < sizes.queries)
        log_sums[(b * sizes.heads + h) * sizes.queries + first + at.row] =
            largest.at[at.held] + B::log(total.at[at.held]);
    });
    block.sync();
    store_tile(block, q_tile, head_view(y, b, h, first, sizes.queries, sizes.head_size));
  }

 private:
  static constexpr Stage make_stage(SharedAllocator& shared) {
    const auto k_tile = shared.tile<T, keys, d>(), v_tile = shared.tile<T, keys, d>();
    return {k_tile, v_tile};
  }

  // Products q k -> p = exp(score - maximum so far), and the factor that scales the sums of the
  // tiles before. A row sees the columns before row + diagonal; the scores of the others are
  // -infinity, so that their exp is 0. Every row sees key 0, so the maximum is finite from the
  // first tile on.
  template <TileBlock B, class Scores, class Numbers>
  constexpr Numbers softmax(Scores& p, int diagonal, Numbers& largest, Numbers& total) const {
    Numbers now = largest;
    p.for_each([&](ElementAt at, float& x) {
      x = at.column < at.row + diagonal ? x * scale : -std::numeric_limits<float>::infinity();
      now.at[at.held] = now.at[at.held] < x ? x : now.at[at.held];
    });
    p.max_of_rows(now);
    Numbers factors{};
    p.for_each_row([&](int held) {
      factors.at[held] = B::exp(largest.at[held] - now.at[held]);
      total.at[held] *= factors.at[held];
    });
    p.for_each([&](ElementAt at, float& x) {
      x = B::exp(x - now.at[at.held]);
      total.at[at.held] += x;
    });
    largest = now;
    return factors;
  }
};

}  // namespace ringside::autograd::cuda
