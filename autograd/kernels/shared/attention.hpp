// causal_attention on a GPU: softmax(q k^T / sqrt(D)) v without the T x T scores, forward and
// backward.
//
// After Dao, "FlashAttention-2" (2023): a block keeps one tile of 64 queries and walks over tiles
// of keys up to the diagonal. Softmax needs the largest score and the sum of a row, which are known
// only at its end; so it runs with those of the keys so far, and when a larger score comes, what
// has been added up is scaled down (Milakov and Gimelshein, "Online normalizer calculation for
// softmax", 2018).
//
//            keys -->
//         q +---+                    forward     a block for each row of squares: S = Q K^T, P = exp(S - largest), O = factor O + P V
//         u | \ |                    delta       D_i = dY_i . Y_i  (= sum_j P_ij dP_ij)
//         e +---+---+                keys        a block for each column of squares: dV = P^T dY, dK = (P (dP - D))^T Q
//         r | # | \ |                queries     a block for each row of squares: dQ = P (dP - D) K
//         i +---+---+---+
//         e | # | # | \ |            P is made again in backward from q, k and the saved logarithm of each row's sum, twice: once for the columns
//         s +---+---+---+            and once for the rows. So each number is one block's alone, and sums have one order: no atomics, the same bits.
//
// Numbers are T (float or Bf16), products and softmax are fp32. D is filled up with zeros to 32, 64
// or 128 (with_padded_head_size). What is fetched from global memory arrives by asynchronous copies
// while the tiles before are multiplied.
//
// What a block takes: KiB of shared memory, of which an SM of sm_80 has 163 for its blocks and one
// of sm_90 has 227; and registers of each of its 128 threads, of which an SM has 65536 (so 168
// leave room for three blocks, 255 for two). Compiled for sm_90; nothing is spilled.
//
//                bf16, D = 32    64     128        fp32, D = 32    64     128
//     forward           43, 80   55, 126  79, 163         63, 80   87, 168  135, 222
//     keys              49, 162  73, 217  79, 238         55, 152  87, 168  151, 248
//     queries           40, 118  64, 155  74, 159         46, 96   78, 114  142, 152
#pragma once

#include <limits>

#include "autograd/kernels/block/tiles.hpp"

namespace ringside::autograd::cuda {

inline constexpr int largest_head_size = 128;

// Calls body(Width<32, 64 or 128>) with the smallest that has room for head_size (1 to
// largest_head_size).
template <class Body>
constexpr decltype(auto) with_padded_head_size(int head_size, const Body& body) {
  if (head_size <= 32) return body(Width<32>{});
  if (head_size <= 64) return body(Width<64>{});
  return body(Width<128>{});
}

struct AttentionSizes {
  std::int64_t batch, heads, kv_heads, queries,
      keys;  // keys >= queries: the queries are the last of the keys' positions
  int head_size;

  constexpr std::int64_t group() const {
    return heads / kv_heads;
  }  // query heads that share a key head
  constexpr std::int64_t offset() const {
    return keys - queries;
  }  // query i sees keys 0 .. i + offset
  constexpr std::int64_t tiles_of(std::int64_t length, int rows) const {
    return (length + rows - 1) / rows;
  }
};

// The matrices [T, D] of the heads of a tensor [B, H, T, D] whose last stride is 1.
template <class T>
struct Heads {
  T* data;
  std::int64_t of_batch, of_head, of_row;  // strides, in numbers

  constexpr T* row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return data + b * of_batch + h * of_head + i * of_row;
  }
  constexpr bool in_packs(int head_size) const {
    constexpr int size = Pack<T>::size;
    return cuda::in_packs(head_size, data) && of_batch % size == 0 && of_head % size == 0 &&
           of_row % size == 0;
  }
};

// Rows `first` and further of a head, of which there are `rows` in all.
template <class T>
constexpr Part<T> part_of(const Heads<T>& heads, std::int64_t b, std::int64_t h, std::int64_t first,
                          std::int64_t rows, int head_size) {
  return {heads.row(b, h, first), heads.of_row, rows - first, head_size, heads.in_packs(head_size)};
}

// The block's tile of 64 rows, and the head it is of; counted as int, since a GPU divides long
// numbers slowly. Neighbouring blocks have the same tile of neighbouring heads, which share keys.
struct AttentionPlace {
  std::int64_t b, h, first;
};
inline constexpr int attention_rows = 64;
constexpr AttentionPlace attention_place(std::int64_t index, std::int64_t tiles, std::int64_t heads,
                                         std::int64_t batch, bool last_first) {
  const int i = static_cast<int>(index), all = static_cast<int>(heads * batch), head = i % all,
            tile = i / all, h = static_cast<int>(heads);
  return {head / h, head % h, (last_first ? tiles - 1 - tile : tile) * attention_rows};
}

// How far the diagonal is ahead of a tile's corner, as an int: within a tile, further is all the
// same.
constexpr int ahead_of(std::int64_t distance) {
  constexpr std::int64_t far = 2 * attention_rows;
  return static_cast<int>(distance < -far ? -far : distance > far ? far : distance);
}

// q [B, H, Tq, D], k, v [B, H_kv, Tk, D] -> y [B, H, Tq, D], log_sums [B, H, Tq]: of each row, the
// logarithm of the sum of exp(score).
template <class T, int d>
struct AttentionForward {
  static constexpr int threads = product_threads, rows = attention_rows, keys = 64;
  using Rows = Tile<T, rows, d>;
  using Keys = Tile<T, keys, d>;
  using Scores = Tile<float, rows, keys>;
  using Weights = Tile<T, rows, keys>;

  AttentionSizes sizes;
  float scale;  // of the scores: 1 / sqrt(D)
  Heads<const T> q, k, v;
  Heads<T> y;
  float* log_sums;

  constexpr std::int64_t blocks() const {
    return sizes.batch * sizes.heads * sizes.tiles_of(sizes.queries, rows);
  }
  constexpr std::size_t shared_bytes() const {
    return Rows::bytes + 2 * Keys::bytes + Scores::bytes + Weights::bytes +
           5 * rows * sizeof(float);
  }

  // What a row knows so far, twice: the threads of a group read the one and then write the other.
  struct Running {
    float *largest, *total;
  };

  template <TileBlock B>
  constexpr void operator()(B& block) const {
    Cutter shared(block.shared());
    const auto q_tile = shared.tile<T, rows, d>();
    const auto k_tile = shared.tile<T, keys, d>(), v_tile = shared.tile<T, keys, d>();
    const auto scores = shared.tile<float, rows, keys>();
    const auto weights = shared.tile<T, rows, keys>();
    Running before{shared.numbers<float, rows>(), shared.numbers<float, rows>()},
        now{shared.numbers<float, rows>(), shared.numbers<float, rows>()};
    float* const factors = shared.numbers<float, rows>();

    const auto [b, h, first] = attention_place(block.index(), sizes.tiles_of(sizes.queries, rows),
                                               sizes.heads, sizes.batch, true);
    const std::int64_t kv_head = h / sizes.group(), seen = first + rows + sizes.offset(),
                       end = seen < sizes.keys ? seen : sizes.keys;
    fetch(block, q_tile, part_of(q, b, h, first, sizes.queries, sizes.head_size));
    fetch(block, k_tile, part_of(k, b, kv_head, 0, sizes.keys, sizes.head_size));
    block.end_of_batch();
    for (int row = block.thread(); row < rows; row += block.threads()) {
      before.largest[row] = -std::numeric_limits<float>::infinity();
      before.total[row] = 0;
    }

    typename B::template Product<T, rows, d> output(block);
    for (std::int64_t key = 0; key < end; key += keys) {
      block.finish_copies(0);
      block
          .sync();  // q and k are there; nobody needs v and the weights of the tile before any more
      fetch(block, v_tile, part_of(v, b, kv_head, key, sizes.keys, sizes.head_size));
      block.end_of_batch();
      score(block, q_tile, k_tile, ahead_of(first + sizes.offset() + 1 - key), scores);
      block.sync();  // the scores are there; nobody needs k any more
      if (key + keys < end)
        fetch(block, k_tile, part_of(k, b, kv_head, key + keys, sizes.keys, sizes.head_size));
      block.end_of_batch();
      softmax(block, scores, before, now, factors, weights);
      block.finish_copies(1);
      block.sync();  // v, weights and factors are there
      output.for_each([&](int row, int, float& x) { x *= factors[row]; });
      output.add(weights, v_tile);
      const Running old = before;
      before = now, now = old;
    }

    // The last to look at q, and at `now`, were before the last sync: their places serve for the
    // result.
    for (int row = block.thread(); row < rows; row += block.threads()) {
      now.total[row] = 1 / before.total[row];
      if (first + row < sizes.queries)
        log_sums[(b * sizes.heads + h) * sizes.queries + first + row] =
            before.largest[row] + B::log(before.total[row]);
    }
    block.sync();
    output.for_each(
        [&](int row, int column, float& x) { q_tile(row, column) = T(x * now.total[row]); });
    block.sync();
    keep(block, q_tile, part_of(y, b, h, first, sizes.queries, sizes.head_size));
  }

 private:
  // Scores of the keys that a row sees: those whose column is less than row + ahead. The others are
  // -infinity, whose exp is 0.
  template <TileBlock B>
  constexpr void score(B& block, const Rows& q_tile, const Keys& k_tile, int ahead,
                       const Scores& scores) const {
    typename B::template Product<T, rows, keys> products(block);
    products.add(q_tile, transposed(k_tile));
    products.for_each([&](int row, int column, float& x) {
      scores(row, column) =
          column < row + ahead ? x * scale : -std::numeric_limits<float>::infinity();
    });
  }

  // exp(score - largest so far), and by what to multiply the sums of the tiles before. Every row
  // sees key 0, so `largest` is finite from the first tile on.
  template <TileBlock B>
  constexpr void softmax(B& block, const Scores& scores, const Running& before, const Running& now,
                         float* factors, const Weights& weights) const {
    for_each_row(block, rows, [&](int row, const auto& group) {
      float largest = before.largest[row];
      for (int column = group.index(); column < keys; column += group.count()) {
        const float x = scores(row, column);
        largest = largest < x ? x : largest;
      }
      largest = group.max(largest);
      float total = 0;
      for (int column = group.index(); column < keys; column += group.count()) {
        const float weight = B::exp(scores(row, column) - largest);
        total += weight;
        weights(row, column) = T(weight);
      }
      total = group.sum(total);
      if (group.index() != 0) return;
      const float factor = B::exp(before.largest[row] - largest);
      factors[row] = factor;
      now.largest[row] = largest;
      now.total[row] = before.total[row] * factor + total;
    });
  }
};

// dy, y [B, H, Tq, D] -> delta [B, H, Tq] = sum over D of dy y.
template <class T>
struct AttentionDelta {
  static constexpr int threads = 256, rows_of_block = 128;
  AttentionSizes sizes;
  Heads<const T> dy, y;
  float* delta;

  constexpr std::int64_t rows() const { return sizes.batch * sizes.heads * sizes.queries; }
  constexpr std::int64_t blocks() const { return (rows() + rows_of_block - 1) / rows_of_block; }
  constexpr std::size_t shared_bytes() const { return 0; }

  template <TileBlock B>
  constexpr void operator()(B& block) const {
    const bool packs = dy.in_packs(sizes.head_size) && y.in_packs(sizes.head_size);
    for_each_row(block, rows_of_block, [&](int index, const auto& group) {
      // In y's order of memory, which is [B, Tq, H, D].
      const int place = static_cast<int>(block.index()) * rows_of_block + index,
                heads = static_cast<int>(sizes.heads), queries = static_cast<int>(sizes.queries),
                h = place % heads, i = place / heads % queries, b = place / heads / queries;
      if (b >= sizes.batch) return;
      const T *const dy_row = dy.row(b, h, i), *const y_row = y.row(b, h, i);
      float dot = 0;
      if (packs)
        for (int c = group.index() * Pack<T>::size; c < sizes.head_size;
             c += group.count() * Pack<T>::size) {
          const auto dyc = widened<Pack<T>::size>(dy_row + c),
                     yc = widened<Pack<T>::size>(y_row + c);
          for (int j = 0; j < Pack<T>::size; ++j) dot += dyc.at[j] * yc.at[j];
        }
      else
        for (int c = group.index(); c < sizes.head_size; c += group.count())
          dot += static_cast<float>(dy_row[c]) * static_cast<float>(y_row[c]);
      dot = group.sum(dot);
      if (group.index() == 0) delta[(b * sizes.heads + h) * sizes.queries + i] = dot;
    });
  }
};

// What both kernels of backward read. log_sums and delta are [B, H, Tq].
template <class T>
struct AttentionGradients {
  AttentionSizes sizes;
  float scale;
  Heads<const T> q, k, v, dy;
  const float *log_sums, *delta;

  // How many rows the tiles have that pass by: as many as leave room in shared memory, and in
  // registers, for two of each.
  template <int d>
  static constexpr int passing_rows = sizeof(T) == 2 && d <= 64 ? 64 : 32;

  // log_sums and delta of `count` queries from `first` on, in shared memory; 0 where there are
  // none.
  struct Numbers {
    float *log_sums, *delta;
  };
  template <TileBlock B>
  constexpr void fetch_numbers(B& block, const Numbers& into, int count, std::int64_t b,
                               std::int64_t h, std::int64_t first) const {
    const std::int64_t from = (b * sizes.heads + h) * sizes.queries + first;
    for (int i = block.thread(); i < count; i += block.threads()) {
      const bool there = first + i < sizes.queries;
      into.log_sums[i] = there ? log_sums[from + i] : 0;
      into.delta[i] = there ? delta[from + i] : 0;
    }
  }
  // The probability of a score that was not yet scaled, where the query sees the key.
  template <TileBlock B>
  constexpr float probability(float score, float log_sum, bool seen) const {
    return seen ? B::exp(score * scale - log_sum) : 0.0f;
  }
};

// dK and dV [B, H_kv, Tk, D]: a block for 64 keys. Tiles of queries of all heads of the group pass
// by, each in one of two places while the next is on its way into the other.
template <class T, int d>
struct AttentionKeysBackward {
  static constexpr int threads = product_threads, rows = attention_rows,
                       queries = AttentionGradients<T>::template passing_rows<d>;
  using Keys = Tile<T, rows, d>;
  using Queries = Tile<T, queries, d>;
  using Square = Tile<T, rows, queries>;

  AttentionGradients<T> given;
  Heads<T> dk, dv;

  constexpr std::int64_t blocks() const {
    return given.sizes.batch * given.sizes.kv_heads * given.sizes.tiles_of(given.sizes.keys, rows);
  }
  constexpr std::size_t shared_bytes() const {
    return 2 * Keys::bytes + 4 * Queries::bytes + 2 * Square::bytes + 4 * queries * sizeof(float);
  }

  // What passes by.
  struct Passing {
    Queries q, dy;
    typename AttentionGradients<T>::Numbers numbers;
  };

  template <TileBlock B>
  constexpr void operator()(B& block) const {
    const AttentionSizes& sizes = given.sizes;
    Cutter shared(block.shared());
    const auto k_tile = shared.tile<T, rows, d>(), v_tile = shared.tile<T, rows, d>();
    const auto weights = shared.tile<T, rows, queries>(),
               gradients = shared.tile<T, rows, queries>();
    Passing here = passing(shared), next = passing(shared);

    const auto [b, kv_head, first] = attention_place(
        block.index(), sizes.tiles_of(sizes.keys, rows), sizes.kv_heads, sizes.batch, false);
    const std::int64_t before =
        first - sizes.offset();  // the first query that sees the first key; none sees it earlier
    const int first_tile = before > 0 ? static_cast<int>(before / queries) : 0;
    const int tiles = static_cast<int>(sizes.tiles_of(sizes.queries, queries)) - first_tile,
              steps = static_cast<int>(sizes.group()) * tiles;
    const auto first_query = [&](int step) {
      return std::int64_t{first_tile + step % tiles} * queries;
    };
    const auto request = [&](const Passing& into, int step) {
      const std::int64_t h = kv_head * sizes.group() + step / tiles, query = first_query(step);
      fetch(block, into.q, part_of(given.q, b, h, query, sizes.queries, sizes.head_size));
      fetch(block, into.dy, part_of(given.dy, b, h, query, sizes.queries, sizes.head_size));
      given.fetch_numbers(block, into.numbers, queries, b, h, query);
    };
    fetch(block, k_tile, part_of(given.k, b, kv_head, first, sizes.keys, sizes.head_size));
    fetch(block, v_tile, part_of(given.v, b, kv_head, first, sizes.keys, sizes.head_size));
    request(here, 0);
    block.end_of_batch();

    typename B::template Product<T, rows, d> dk_sum(block), dv_sum(block);
    for (int step = 0; step < steps; ++step) {
      block.finish_copies(0);
      block.sync();  // what was asked for is there; nobody needs the tiles of the step before any
                     // more
      if (step + 1 < steps) request(next, step + 1);
      block.end_of_batch();
      differentiate(block, k_tile, v_tile, here,
                    ahead_of(first_query(step) + sizes.offset() + 1 - first), weights, gradients);
      block.sync();  // weights and gradients are there
      dv_sum.add(weights, here.dy);
      dk_sum.add(gradients, here.q);
      const Passing old = here;
      here = next, next = old;
    }

    // The last to look at k and v were before the last sync.
    dk_sum.for_each(
        [&](int row, int column, float& x) { k_tile(row, column) = T(x * given.scale); });
    dv_sum.for_each([&](int row, int column, float& x) { v_tile(row, column) = T(x); });
    block.sync();
    keep(block, k_tile, part_of(dk, b, kv_head, first, sizes.keys, sizes.head_size));
    keep(block, v_tile, part_of(dv, b, kv_head, first, sizes.keys, sizes.head_size));
  }

 private:
  static constexpr Passing passing(Cutter& shared) {
    const auto q = shared.tile<T, queries, d>(), dy = shared.tile<T, queries, d>();
    float *const log_sums = shared.numbers<float, queries>(), *const delta =
                                                                  shared.numbers<float, queries>();
    return {q, dy, {log_sums, delta}};
  }

  // P^T and (P (dP - delta))^T of this tile of keys and that tile of queries.
  template <TileBlock B>
  constexpr void differentiate(B& block, const Keys& k_tile, const Keys& v_tile,
                               const Passing& here, int ahead, const Square& weights,
                               const Square& gradients) const {
    typename B::template Product<T, rows, queries> score(block), dp(block);
    score.add(k_tile, transposed(here.q));
    dp.add(v_tile, transposed(here.dy));
    score.for_each(dp, [&](int row, int column, float& s, float& dpi) {
      const float p =
          given.template probability<B>(s, here.numbers.log_sums[column], row - column < ahead);
      weights(row, column) = T(p);
      gradients(row, column) = T(p * (dpi - here.numbers.delta[column]));
    });
  }
};

// dQ [B, H, Tq, D]: a block for 64 queries. Tiles of keys pass by, up to the diagonal.
template <class T, int d>
struct AttentionQueriesBackward {
  static constexpr int threads = product_threads, rows = attention_rows,
                       keys = AttentionGradients<T>::template passing_rows<d>;
  using Rows = Tile<T, rows, d>;
  using Keys = Tile<T, keys, d>;
  using Square = Tile<T, rows, keys>;

  AttentionGradients<T> given;
  Heads<T> dq;

  constexpr std::int64_t blocks() const {
    return given.sizes.batch * given.sizes.heads * given.sizes.tiles_of(given.sizes.queries, rows);
  }
  constexpr std::size_t shared_bytes() const {
    return 2 * Rows::bytes + 4 * Keys::bytes + Square::bytes + 2 * rows * sizeof(float);
  }

  struct Passing {
    Keys k, v;
  };

  template <TileBlock B>
  constexpr void operator()(B& block) const {
    const AttentionSizes& sizes = given.sizes;
    Cutter shared(block.shared());
    const auto q_tile = shared.tile<T, rows, d>(), dy_tile = shared.tile<T, rows, d>();
    const auto gradients = shared.tile<T, rows, keys>();
    Passing here = passing(shared), next = passing(shared);
    float *const log_sums = shared.numbers<float, rows>(), *const delta =
                                                               shared.numbers<float, rows>();

    const auto [b, h, first] = attention_place(block.index(), sizes.tiles_of(sizes.queries, rows),
                                               sizes.heads, sizes.batch, true);
    const std::int64_t kv_head = h / sizes.group(), seen = first + rows + sizes.offset(),
                       end = seen < sizes.keys ? seen : sizes.keys;
    const auto request = [&](const Passing& into, std::int64_t key) {
      fetch(block, into.k, part_of(given.k, b, kv_head, key, sizes.keys, sizes.head_size));
      fetch(block, into.v, part_of(given.v, b, kv_head, key, sizes.keys, sizes.head_size));
    };
    fetch(block, q_tile, part_of(given.q, b, h, first, sizes.queries, sizes.head_size));
    fetch(block, dy_tile, part_of(given.dy, b, h, first, sizes.queries, sizes.head_size));
    given.fetch_numbers(block, {log_sums, delta}, rows, b, h, first);
    request(here, 0);
    block.end_of_batch();

    typename B::template Product<T, rows, d> dq_sum(block);
    for (std::int64_t key = 0; key < end; key += keys) {
      block.finish_copies(0);
      block.sync();  // what was asked for is there; nobody needs the tiles of the step before any
                     // more
      if (key + keys < end) request(next, key + keys);
      block.end_of_batch();
      typename B::template Product<T, rows, keys> score(block), dp(block);
      score.add(q_tile, transposed(here.k));
      dp.add(dy_tile, transposed(here.v));
      const int ahead = ahead_of(first + sizes.offset() + 1 - key);
      score.for_each(dp, [&](int row, int column, float& s, float& dpi) {
        gradients(row, column) =
            T(given.template probability<B>(s, log_sums[row], column < row + ahead) *
              (dpi - delta[row]));
      });
      block.sync();  // gradients are there
      dq_sum.add(gradients, here.k);
      const Passing old = here;
      here = next, next = old;
    }

    // The last to look at q were before the last sync.
    dq_sum.for_each(
        [&](int row, int column, float& x) { q_tile(row, column) = T(x * given.scale); });
    block.sync();
    keep(block, q_tile, part_of(dq, b, h, first, sizes.queries, sizes.head_size));
  }

 private:
  static constexpr Passing passing(Cutter& shared) {
    const auto k = shared.tile<T, keys, d>(), v = shared.tile<T, keys, d>();
    return {k, v};
  }
};

}  // namespace ringside::autograd::cuda
