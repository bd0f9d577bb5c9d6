// causal_attention on a GPU: y = softmax(q k^T / sqrt(D)) v, without a T x T matrix in memory. This
// file has what all its kernels share, and the forward kernel; attention_backward.hpp has the
// others.
//
// After Dao, "FlashAttention-2" (2023). A block takes a tile of queries and loops over tiles of
// keys up to the diagonal. Softmax needs the maximum and the sum of a row, which are known only
// after the last tile. So it uses the maximum of the keys so far; when a tile has a larger score,
// everything summed before is scaled down (Milakov and Gimelshein, "Online normalizer calculation
// for softmax", 2018).
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
// Shared memory has what all warps read. S and P never leave the registers of the warp that has
// computed them, and a row's maximum and sum are there too. So warps wait for each other only once
// for each tile of keys: when the next one has arrived. In bf16:
//
//          shared memory              registers of a warp: 32 rows, four threads for each row
//
//        Q               K                 64 keys          64 keys              D
//     [ warp 0 ]                        +-----------+    +-----------+    +--------------+
//     [ warp 1 ]   [ this tile ]   -->  |     S     | -> |     P     | -> | Y, max, sum  | -> y
//     [ warp 2 ]   [ next tile ]        +-----------+    +-----------+ ^  +--------------+
//     [ warp 3 ]                                                       |
//                        V                                             |
//                  [ this tile ]   ------------------------------------+
//                  [ next tile ]        (asynchronous copies load the next tiles meanwhile)
//
// Backward recomputes P from q, k and the saved logarithm of each row's sum, twice: once by columns
// and once by rows. So one block computes each number, with its sums in one order: no atomics, and
// the same bits on every run.
//
// Elements are T (float or Bf16); products and softmax are fp32. D is padded with zeros to 32, 64
// or 128 (with_padded_head_size).
//
// In bf16 most warps have 32 rows. With 16 they would load each tile from shared memory twice as
// often for the same products, and wait for it. So a thread uses most of its 255 registers, and two
// blocks of four warps fill a multiprocessor (SM): one computes exp while the other multiplies.
//
// Resources, as "KiB of shared memory per block, rounded up, registers per thread" (compiled for
// sm_90; forward of 128 spills 24 bytes, which it needs once for each tile). An SM has 163 KiB
// (sm_80: one block with D = 128) or 227 KiB (sm_90) of shared memory for its blocks, and 65536
// registers: 128 per thread allow four blocks of 128 threads on an SM, 168 allow three, 255 two.
//
//                bf16, D = 32      64       128        fp32, D = 32    64     128
//     forward           30, 132  54, 171  102, 255        45, 128  85, 166   99, 146
//     keys              31, 162  55, 242  104, 255        37, 146  69, 168  133, 255
//     queries           41, 208  73, 245  103, 242        37, 92   69, 109  133, 130
#pragma once

#include <limits>
#include <numbers>

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
  return {heads.row(b, h, first), static_cast<int>(heads.row_stride),
          static_cast<int>(rows - first), head_size, heads.fits_packs(head_size)};
}

// The tile of `rows` rows that a block works on: batch entry, head, first row. Consecutive blocks
// take the same rows of consecutive heads, because these share keys. With `last_first` the last
// rows are taken first: they see the most keys, so the longest blocks start first. Indices are int
// because a GPU divides 64-bit integers slowly.
struct AttentionTile {
  int b, h, first;
};
constexpr AttentionTile attention_tile(std::int64_t index, int rows, std::int64_t tiles,
                                       std::int64_t heads, std::int64_t batch, bool last_first) {
  const int i = static_cast<int>(index), all = static_cast<int>(heads * batch), head = i % all,
            tile = i / all, h = static_cast<int>(heads), last = static_cast<int>(tiles) - 1;
  return {head / h, head % h, (last_first ? last - tile : tile) * rows};
}

// The diagonal relative to a tile: row r of the tile sees columns c < r + diagonal. Clamped so that
// it fits an int; a diagonal outside of the tile acts the same at any distance.
constexpr int diagonal_in_tile(std::int64_t distance) {
  constexpr std::int64_t far = 1024;  // more than any tile has of rows and columns
  return static_cast<int>(distance < -far ? -far : distance > far ? far : distance);
}

// q [B, H, Tq, D], k, v [B, H_kv, Tk, D] -> y [B, H, Tq, D], log_sums [B, H, Tq]: the logarithm of
// each row's sum of exp(score).
template <class T, int d>
struct AttentionForward {
  // In bf16 a warp has 32 rows: it reads a tile of keys half as often as with 16. Four fp32 tiles
  // of 64 keys and 128 columns would not fit in shared memory.
  static constexpr int threads = tile_threads, rows = sizeof(T) == 2 ? 128 : 64,
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

  // What a block works on: its queries, the keys that they see, and its shared memory. While the
  // block computes with the keys in `current`, those after them are loaded into `next`.
  struct Stage {
    Keys k, v;
  };
  struct Work {
    AttentionTile at;
    MatrixView<const T> all_k, all_v;  // of its head
    int end;                           // it needs keys 0 .. end-1
    Rows q;
    Stage current, next;
  };
  // What a thread has of its rows, over the keys so far.
  template <TileBlock B>
  struct RowSums {
    using Output = typename B::template Accumulator<T, rows, d>;
    using Numbers = typename Output::Numbers;

    constexpr explicit RowSums(const B& block) : output(block) {}

    Output output;  // sum of exp(score - largest) v
    // Of the unscaled scores.
    Numbers largest = Numbers::all(-std::numeric_limits<float>::infinity());
    Numbers total = Numbers::all(0);  // sum of exp(score - largest), of this thread's columns
  };

  template <TileBlock B>
  constexpr void operator()(B& block) const {
    const AttentionTile at = attention_tile(
        block.index(), rows, sizes.tiles_of(sizes.queries, rows), sizes.heads, sizes.batch, true);
    const std::int64_t seen = at.first + rows + sizes.offset(), kv_head = at.h / sizes.group();
    SharedAllocator shared(block.shared());
    Work work{at,
              head_view(k, at.b, kv_head, 0, sizes.keys, sizes.head_size),
              head_view(v, at.b, kv_head, 0, sizes.keys, sizes.head_size),
              static_cast<int>(seen < sizes.keys ? seen : sizes.keys),
              shared.tile<T, rows, d>(),
              {shared.tile<T, keys, d>(), shared.tile<T, keys, d>()},
              {shared.tile<T, keys, d>(), shared.tile<T, keys, d>()}};
    load_tile_async(block, work.q,
                    head_view(q, at.b, at.h, at.first, sizes.queries, sizes.head_size));
    load_keys(block, work, work.current, 0);
    block.commit_copies();
    RowSums<B> sums(block);
    take_all_keys(block, work, sums);
    finish(block, work, sums);
  }

 private:
  // Starts to load k and v from row `key` on.
  template <TileBlock B>
  constexpr void load_keys(B& block, const Work& work, const Stage& into, int key) const {
    load_tile_async(block, into.k, work.all_k.from_row(key));
    load_tile_async(block, into.v, work.all_v.from_row(key));
  }

  // Takes tile after tile of keys. The copies of q and of the first tile have begun.
  template <TileBlock B>
  constexpr void take_all_keys(B& block, Work& work, RowSums<B>& sums) const {
    for (int key = 0; key < work.end; key += keys) {
      block.wait_copies(0);
      block.sync();  // the current stage is loaded; the other one is no longer in use
      if (key + keys < work.end) load_keys(block, work, work.next, key + keys);
      block.commit_copies();
      take_tile(block, work, diagonal_in_tile(work.at.first + sizes.offset() + 1 - key), sums);
      const Stage old = work.current;
      work.current = work.next, work.next = old;
    }
  }

  // Adds the keys of the current stage to the sums. A row sees the columns before row + diagonal;
  // the scores of the others are -infinity, so that their exp is 0. Most tiles have none: they lie
  // before the diagonal. Every row sees key 0, so its largest score is finite from the first tile
  // on.
  //
  // Scores are scaled within the exponent, and exp(x) is exp2(x log2(e)): so for each score there
  // is one multiplication with addition and one exp2, which is an instruction of a GPU.
  template <TileBlock B>
  constexpr void take_tile(B& block, const Work& work, int diagonal, RowSums<B>& sums) const {
    typename B::template Accumulator<T, rows, keys> p(block);
    p.add_product(work.q, transposed(work.current.k));

    if (diagonal < keys)
      p.for_each([&](ElementAt at, float& x) {
        if (at.column >= at.row + diagonal) x = -std::numeric_limits<float>::infinity();
      });
    auto largest = sums.largest;  // of the keys so far and of these
    p.for_each([&](ElementAt at, float& x) { largest[at.held] = B::larger(largest[at.held], x); });
    p.max_of_rows(largest);

    const float scale2 = scale * std::numbers::log2e_v<float>;
    auto factors = largest, largest2 = largest;  // of what was summed before; scaled
    unrolled<factors.count>([&](int held) {
      factors[held] = B::exp2((sums.largest[held] - largest[held]) * scale2);
      sums.total[held] *= factors[held];
      largest2[held] = largest[held] * scale2;
    });
    sums.output.for_each([&](ElementAt at, float& x) { x *= factors[at.held]; });
    sums.largest = largest;

    p.for_each([&](ElementAt at, float& x) {
      x = B::exp2(x * scale2 - largest2[at.held]);
      sums.total[at.held] += x;
    });
    sums.output.add_product(p, work.current.v);
  }

  // Divides the output by the sums of the rows and stores it, and the logarithms of the sums. A
  // thread overwrites its own rows of work.q, which no thread of another row reads.
  template <TileBlock B>
  constexpr void finish(B& block, const Work& work, RowSums<B>& sums) const {
    const int b = work.at.b, h = work.at.h, first = work.at.first;
    float* const log_sums_of_head = log_sums + (b * sizes.heads + h) * sizes.queries;
    sums.output.sum_of_rows(sums.total);
    auto inverse = sums.total;
    unrolled<inverse.count>([&](int held) { inverse[held] = 1 / inverse[held]; });
    sums.output.for_each([&](ElementAt at, float& x) {
      work.q(at.row, at.column) = T(x * inverse[at.held]);
      if (at.column == 0 && first + at.row < sizes.queries)
        log_sums_of_head[first + at.row] =
            sums.largest[at.held] * scale + B::log(sums.total[at.held]);
    });
    block.sync();
    store_tile(block, work.q, head_view(y, b, h, first, sizes.queries, sizes.head_size));
  }
};

}  // namespace ringside::autograd::cuda
