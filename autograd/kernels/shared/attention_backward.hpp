// causal_attention on a GPU, backward. See attention.hpp for the method and for what each kernel
// computes.
#pragma once

#include "autograd/kernels/shared/attention.hpp"

namespace ringside::autograd::cuda {

// dy, y [B, H, Tq, D] -> delta [B, H, Tq]: the dot product of each row of dy with its row of y.
template <class T>
struct AttentionDelta {
  static constexpr int threads = 256, rows_of_block = 128;
  AttentionSizes sizes;
  Heads<const T> dy, y;
  float* delta;

  constexpr std::int64_t rows() const { return sizes.batch * sizes.heads * sizes.queries; }
  constexpr std::int64_t blocks() const { return (rows() + rows_of_block - 1) / rows_of_block; }

  template <TileBlock B>
  constexpr void operator()(B& block) const {
    const bool packs = dy.fits_packs(sizes.head_size) && y.fits_packs(sizes.head_size);
    for_each_row(block, rows_of_block, [&](int index, const auto& group) {
      // Rows in the order in which y lies in memory: [B, Tq, H, D].
      const int row = static_cast<int>(block.index()) * rows_of_block + index,
                heads = static_cast<int>(sizes.heads), queries = static_cast<int>(sizes.queries),
                h = row % heads, i = row / heads % queries, b = row / heads / queries;
      if (b >= sizes.batch) return;
      const T *const dy_row = dy.row(b, h, i), *const y_row = y.row(b, h, i);
      float dot = 0;
      if (packs)
        for (int c = group.index() * Pack<T>::size; c < sizes.head_size;
             c += group.count() * Pack<T>::size) {
          const auto dyc = load_floats<Pack<T>::size>(dy_row + c),
                     yc = load_floats<Pack<T>::size>(y_row + c);
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

// What the kernels for keys and for queries read. log_sums and delta are [B, H, Tq].
template <class T>
struct AttentionBackwardInputs {
  AttentionSizes sizes;
  float scale;
  Heads<const T> q, k, v, dy;
  const float *log_sums, *delta;

  // Rows of the tiles that a kernel loops over. The number leaves room for two stages in shared
  // memory and in registers.
  template <int d>
  static constexpr int stage_rows = sizeof(T) == 2 && d <= 64 ? 64 : 32;

  // log_sums and delta of `count` queries from `first` on, in shared memory; 0 beyond the last
  // query.
  struct RowValues {
    float *log_sums, *delta;
  };
  template <TileBlock B>
  constexpr void load_row_values(B& block, const RowValues& into, int count, std::int64_t b,
                                 std::int64_t h, std::int64_t first) const {
    const std::int64_t from = (b * sizes.heads + h) * sizes.queries + first;
    for (int i = block.thread(); i < count; i += block.threads()) {
      const bool exists = first + i < sizes.queries;
      into.log_sums[i] = exists ? log_sums[from + i] : 0;
      into.delta[i] = exists ? delta[from + i] : 0;
    }
  }
  // The probability of an unscaled score; 0 if the query does not see the key.
  template <TileBlock B>
  constexpr float probability(float score, float log_sum, bool seen) const {
    return seen ? B::exp(score * scale - log_sum) : 0.0f;
  }
};

// dK and dV [B, H_kv, Tk, D]: one block for each 64 keys. It loops over tiles of queries of all
// heads that share these keys. There are two stages: while the block computes with one, the tiles
// of the next step are loaded into the other.
template <class T, int d>
struct AttentionKeysBackward {
  static constexpr int threads = tile_threads, rows = attention_rows,
                       queries = AttentionBackwardInputs<T>::template stage_rows<d>;
  using Keys = Tile<T, rows, d>;
  using Queries = Tile<T, queries, d>;
  using RowValues = typename AttentionBackwardInputs<T>::RowValues;

  AttentionBackwardInputs<T> inputs;
  Heads<T> dk, dv;

  constexpr std::int64_t blocks() const {
    return inputs.sizes.batch * inputs.sizes.kv_heads *
           inputs.sizes.tiles_of(inputs.sizes.keys, rows);
  }
  constexpr std::size_t shared_bytes() const {
    return 2 * Keys::bytes + 4 * Queries::bytes + 4 * queries * sizeof(float);
  }

  struct Stage {
    Queries q, dy;
    RowValues row_values;
  };

  template <TileBlock B>
  constexpr void operator()(B& block) const {
    const AttentionSizes& sizes = inputs.sizes;
    SharedAllocator shared(block.shared());
    const auto k_tile = shared.tile<T, rows, d>(), v_tile = shared.tile<T, rows, d>();
    Stage current = make_stage(shared), next = make_stage(shared);

    const auto [b, kv_head, first] = attention_tile(block.index(), sizes.tiles_of(sizes.keys, rows),
                                                    sizes.kv_heads, sizes.batch, false);
    // No query before `visible_from` sees any of these keys.
    const std::int64_t visible_from = first - sizes.offset();
    const int first_tile = visible_from > 0 ? static_cast<int>(visible_from / queries) : 0;
    const int tiles = static_cast<int>(sizes.tiles_of(sizes.queries, queries)) - first_tile,
              steps = static_cast<int>(sizes.group()) * tiles;
    const auto first_query = [&](int step) {
      return std::int64_t{first_tile + step % tiles} * queries;
    };
    const auto prefetch = [&](const Stage& into, int step) {
      const std::int64_t h = kv_head * sizes.group() + step / tiles, query = first_query(step);
      load_tile_async(block, into.q,
                      head_view(inputs.q, b, h, query, sizes.queries, sizes.head_size));
      load_tile_async(block, into.dy,
                      head_view(inputs.dy, b, h, query, sizes.queries, sizes.head_size));
      inputs.load_row_values(block, into.row_values, queries, b, h, query);
    };
    load_tile_async(block, k_tile,
                    head_view(inputs.k, b, kv_head, first, sizes.keys, sizes.head_size));
    load_tile_async(block, v_tile,
                    head_view(inputs.v, b, kv_head, first, sizes.keys, sizes.head_size));
    prefetch(current, 0);
    block.commit_copies();

    typename B::template Accumulator<T, rows, d> dk_sum(block), dv_sum(block);
    for (int step = 0; step < steps; ++step) {
      block.wait_copies(0);
      block.sync();  // the current stage is loaded; the other is no longer in use
      if (step + 1 < steps) prefetch(next, step + 1);
      block.commit_copies();
      const RowValues& of_query = current.row_values;
      const int diagonal = diagonal_in_tile(first_query(step) + sizes.offset() + 1 - first);
      // P^T and dS^T, for this tile of keys and the stage's tile of queries.
      typename B::template Accumulator<T, rows, queries> p(block), ds(block);
      p.add_product(k_tile, transposed(current.q));
      p.for_each([&](ElementAt at, float& x) {
        x = inputs.template probability<B>(x, of_query.log_sums[at.column],
                                           at.row - at.column < diagonal);
      });
      dv_sum.add_product(p, current.dy);
      ds.add_product(v_tile, transposed(current.dy));
      ds.for_each(
          p, [&](ElementAt at, float& x, float pi) { x = pi * (x - of_query.delta[at.column]); });
      dk_sum.add_product(ds, current.q);
      const Stage old = current;
      current = next, next = old;
    }

    // A thread overwrites its own rows of k_tile and v_tile, which no thread of another row reads.
    dk_sum.for_each(
        [&](ElementAt at, float& x) { k_tile(at.row, at.column) = T(x * inputs.scale); });
    dv_sum.for_each([&](ElementAt at, float& x) { v_tile(at.row, at.column) = T(x); });
    block.sync();
    store_tile(block, k_tile, head_view(dk, b, kv_head, first, sizes.keys, sizes.head_size));
    store_tile(block, v_tile, head_view(dv, b, kv_head, first, sizes.keys, sizes.head_size));
  }

 private:
  static constexpr Stage make_stage(SharedAllocator& shared) {
    const auto q = shared.tile<T, queries, d>(), dy = shared.tile<T, queries, d>();
    float *const log_sums = shared.array<float, queries>(), *const delta =
                                                                shared.array<float, queries>();
    return {q, dy, {log_sums, delta}};
  }
};

// dQ [B, H, Tq, D]: one block for each 64 queries. It loops over tiles of keys up to the diagonal,
// in two stages as above.
template <class T, int d>
struct AttentionQueriesBackward {
  static constexpr int threads = tile_threads, rows = attention_rows,
                       keys = AttentionBackwardInputs<T>::template stage_rows<d>;
  using Rows = Tile<T, rows, d>;
  using Keys = Tile<T, keys, d>;

  AttentionBackwardInputs<T> inputs;
  Heads<T> dq;

  constexpr std::int64_t blocks() const {
    return inputs.sizes.batch * inputs.sizes.heads *
           inputs.sizes.tiles_of(inputs.sizes.queries, rows);
  }
  constexpr std::size_t shared_bytes() const {
    return 2 * Rows::bytes + 4 * Keys::bytes + 2 * rows * sizeof(float);
  }

  struct Stage {
    Keys k, v;
  };

  template <TileBlock B>
  constexpr void operator()(B& block) const {
    const AttentionSizes& sizes = inputs.sizes;
    SharedAllocator shared(block.shared());
    const auto q_tile = shared.tile<T, rows, d>(), dy_tile = shared.tile<T, rows, d>();
    Stage current = make_stage(shared), next = make_stage(shared);
    float *const log_sums = shared.array<float, rows>(), *const delta = shared.array<float, rows>();

    const auto [b, h, first] = attention_tile(block.index(), sizes.tiles_of(sizes.queries, rows),
                                              sizes.heads, sizes.batch, true);
    const std::int64_t kv_head = h / sizes.group(), seen = first + rows + sizes.offset(),
                       end = seen < sizes.keys ? seen : sizes.keys;
    const auto prefetch = [&](const Stage& into, std::int64_t key) {
      load_tile_async(block, into.k,
                      head_view(inputs.k, b, kv_head, key, sizes.keys, sizes.head_size));
      load_tile_async(block, into.v,
                      head_view(inputs.v, b, kv_head, key, sizes.keys, sizes.head_size));
    };
    load_tile_async(block, q_tile,
                    head_view(inputs.q, b, h, first, sizes.queries, sizes.head_size));
    load_tile_async(block, dy_tile,
                    head_view(inputs.dy, b, h, first, sizes.queries, sizes.head_size));
    inputs.load_row_values(block, {log_sums, delta}, rows, b, h, first);
    prefetch(current, 0);
    block.commit_copies();

    typename B::template Accumulator<T, rows, d> dq_sum(block);
    for (std::int64_t key = 0; key < end; key += keys) {
      block.wait_copies(0);
      block.sync();  // the current stage is loaded; the other is no longer in use
      if (key + keys < end) prefetch(next, key + keys);
      block.commit_copies();
      const int diagonal = diagonal_in_tile(first + sizes.offset() + 1 - key);
      typename B::template Accumulator<T, rows, keys> p(block), ds(block);
      p.add_product(q_tile, transposed(current.k));
      p.for_each([&](ElementAt at, float& x) {
        x = inputs.template probability<B>(x, log_sums[at.row], at.column < at.row + diagonal);
      });
      ds.add_product(dy_tile, transposed(current.v));
      ds.for_each(p, [&](ElementAt at, float& x, float pi) { x = pi * (x - delta[at.row]); });
      dq_sum.add_product(ds, current.k);
      const Stage old = current;
      current = next, next = old;
    }

    // A thread overwrites its own rows of q_tile, which no thread of another row reads.
    dq_sum.for_each(
        [&](ElementAt at, float& x) { q_tile(at.row, at.column) = T(x * inputs.scale); });
    block.sync();
    store_tile(block, q_tile, head_view(dq, b, h, first, sizes.queries, sizes.head_size));
  }

 private:
  static constexpr Stage make_stage(SharedAllocator& shared) {
    const auto k = shared.tile<T, keys, d>(), v = shared.tile<T, keys, d>();
    return {k, v};
  }
};

}  // namespace ringside::autograd::cuda
