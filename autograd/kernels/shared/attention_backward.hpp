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

  // log_sums and delta of the queries of a tile, in shared memory; 0 beyond the last query.
  template <int count>
  struct RowValues {
    Tile<float, 1, count> log_sums, delta;
    static constexpr std::size_t bytes = 2 * Tile<float, 1, count>::bytes;
    static constexpr RowValues at(std::byte* shared) {
      using Values = Tile<float, 1, count>;
      return {Values::at(shared), Values::at(shared + Values::bytes)};
    }
  };
  template <int count, TileBlock B>
  constexpr void load_row_values(B& block, const RowValues<count>& into, int b, int h,
                                 int first) const {
    const int head = (b * static_cast<int>(sizes.heads) + h) * static_cast<int>(sizes.queries);
    const auto from_first = [&](const float* values) {
      const float* const row = values + head + first;
      return MatrixView<const float>{row, 0, 1, static_cast<int>(sizes.queries - first),
                                     fits_packs(sizes.queries, row)};
    };
    load_tile_async(block, into.log_sums, from_first(log_sums));
    load_tile_async(block, into.delta, from_first(delta));
  }
  // Probabilities of unscaled scores: exp(score scale - log_sum), where log_sum_of(at) is from
  // RowValues. 0 where the query does not see the key; most tiles have no such place.
  template <TileBlock B, class Scores, class Visible, class LogSumOf>
  constexpr void to_probabilities(Scores& p, bool all_visible, const Visible& visible,
                                  const LogSumOf& log_sum_of) const {
    const float scale2 = scale * std::numbers::log2e_v<float>;
    if (!all_visible)
      p.for_each([&](ElementAt at, float& x) {
        if (!visible(at)) x = -std::numeric_limits<float>::infinity();
      });
    p.for_each([&](ElementAt at, float& x) {
      x = B::exp2(x * scale2 - log_sum_of(at) * std::numbers::log2e_v<float>);
    });
  }
};

// dK and dV [B, H_kv, Tk, D]: one block for each `rows` keys. It loops over tiles of queries of all
// heads that share these keys. There are two stages: while the block computes with one, the tiles
// of the next step are loaded into the other.
template <class T, int d>
struct AttentionKeysBackward {
  // What fits into registers: two sums of `rows` rows, and two tiles of scores; fp32: what fits
  // into shared memory.
  static constexpr int threads = tile_threads, rows = sizeof(T) == 2 && d <= 64 ? 128 : 64,
                       queries = sizeof(T) == 2 && d == 128 ? 64 : 32;
  using Keys = Tile<T, rows, d>;
  using Queries = Tile<T, queries, d>;
  using RowValues = typename AttentionBackwardInputs<T>::template RowValues<queries>;

  AttentionBackwardInputs<T> inputs;
  Heads<T> dk, dv;

  constexpr std::int64_t blocks() const {
    return inputs.sizes.batch * inputs.sizes.kv_heads *
           inputs.sizes.tiles_of(inputs.sizes.keys, rows);
  }
  constexpr std::size_t shared_bytes() const { return 2 * Keys::bytes + 2 * Stage::bytes; }

  struct Stage {
    static constexpr std::size_t bytes = 2 * Queries::bytes + RowValues::bytes;
    std::byte* shared;
    constexpr Queries q() const { return Queries::at(shared); }
    constexpr Queries dy() const { return Queries::at(shared + Queries::bytes); }
    constexpr RowValues row_values() const { return RowValues::at(shared + 2 * Queries::bytes); }
  };

  template <TileBlock B>
  constexpr void operator()(B& block) const {
    const AttentionSizes& sizes = inputs.sizes;
    SharedAllocator shared(block.shared());
    const auto k_tile = shared.tile<T, rows, d>(), v_tile = shared.tile<T, rows, d>();
    Stage current{shared.take(Stage::bytes)}, next{shared.take(Stage::bytes)};

    const auto [b, kv_head, first] = attention_tile(
        block.index(), rows, sizes.tiles_of(sizes.keys, rows), sizes.kv_heads, sizes.batch, false);
    // No query before `visible_from` sees any of these keys.
    const int visible_from = static_cast<int>(first - sizes.offset()),
              first_query = visible_from > 0 ? visible_from / queries * queries : 0;
    struct Step {  // a tile of queries: its head, and what begins with its first query
      int h, query;
      MatrixView<const T> q, dy;
    };
    const auto begin_head = [&, b = b](int h) {
      return Step{h, first_query,
                  head_view(inputs.q, b, h, first_query, sizes.queries, sizes.head_size),
                  head_view(inputs.dy, b, h, first_query, sizes.queries, sizes.head_size)};
    };
    const auto following = [&](const Step& step) {
      const int query = step.query + queries;
      return query < sizes.queries
                 ? Step{step.h, query, step.q.from_row(queries), step.dy.from_row(queries)}
                 : begin_head(step.h + 1);
    };
    const auto prefetch = [&, b = b](const Stage& into, const Step& step) {
      load_tile_async(block, into.q(), step.q);
      load_tile_async(block, into.dy(), step.dy);
      inputs.load_row_values(block, into.row_values(), b, step.h, step.query);
    };
    const int end = static_cast<int>((kv_head + 1) * sizes.group());
    Step step = begin_head(static_cast<int>(kv_head * sizes.group()));
    load_tile_async(block, k_tile,
                    head_view(inputs.k, b, kv_head, first, sizes.keys, sizes.head_size));
    load_tile_async(block, v_tile,
                    head_view(inputs.v, b, kv_head, first, sizes.keys, sizes.head_size));
    prefetch(current, step);
    block.commit_copies();

    typename B::template Accumulator<T, rows, d> dk_sum(block), dv_sum(block);
    while (step.h < end) {
      block.wait_copies(0);
      block.sync();  // the current stage is loaded; the other is no longer in use
      const int diagonal = diagonal_in_tile(step.query + sizes.offset() + 1 - first);
      step = following(step);
      if (step.h < end) prefetch(next, step);
      block.commit_copies();
      const RowValues of_query = current.row_values();
      // P^T and dS^T, for this tile of keys and the stage's tile of queries.
      typename B::template Accumulator<T, rows, queries> p(block), ds(block);
      p.add_product(k_tile, transposed(current.q()));
      inputs.template to_probabilities<B>(
          p, diagonal >= rows, [&](ElementAt at) { return at.row - at.column < diagonal; },
          [&](ElementAt at) { return of_query.log_sums(0, at.column); });
      dv_sum.add_product(p, current.dy());
      ds.add_product(v_tile, transposed(current.dy()));
      ds.for_each(p, [&](ElementAt at, float& x, float pi) {
        x = pi * (x - of_query.delta(0, at.column));
      });
      dk_sum.add_product(ds, current.q());
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
};

// dQ [B, H, Tq, D]: one block for each 64 queries. It loops over tiles of keys up to the diagonal,
// in two stages as above.
template <class T, int d>
struct AttentionQueriesBackward {
  static constexpr int threads = tile_threads, rows = sizeof(T) == 2 ? 128 : 64,
                       keys = sizeof(T) == 2 && d <= 64 ? 64 : 32;
  using Rows = Tile<T, rows, d>;
  using Keys = Tile<T, keys, d>;
  using RowValues = typename AttentionBackwardInputs<T>::template RowValues<rows>;

  AttentionBackwardInputs<T> inputs;
  Heads<T> dq;

  constexpr std::int64_t blocks() const {
    return inputs.sizes.batch * inputs.sizes.heads *
           inputs.sizes.tiles_of(inputs.sizes.queries, rows);
  }
  constexpr std::size_t shared_bytes() const {
    return 2 * Rows::bytes + 4 * Keys::bytes + RowValues::bytes;
  }

  struct Stage {
    std::byte* shared;
    constexpr Keys k() const { return Keys::at(shared); }
    constexpr Keys v() const { return Keys::at(shared + Keys::bytes); }
  };

  template <TileBlock B>
  constexpr void operator()(B& block) const {
    const AttentionSizes& sizes = inputs.sizes;
    SharedAllocator shared(block.shared());
    const auto q_tile = shared.tile<T, rows, d>(), dy_tile = shared.tile<T, rows, d>();
    Stage current{shared.take(2 * Keys::bytes)}, next{shared.take(2 * Keys::bytes)};
    const RowValues row_values = RowValues::at(shared.take(RowValues::bytes));

    const auto [b, h, first] = attention_tile(
        block.index(), rows, sizes.tiles_of(sizes.queries, rows), sizes.heads, sizes.batch, true);
    const std::int64_t kv_head = h / sizes.group(), seen = first + rows + sizes.offset();
    const int end = static_cast<int>(seen < sizes.keys ? seen : sizes.keys);
    const auto all_k = head_view(inputs.k, b, kv_head, 0, sizes.keys, sizes.head_size),
               all_v = head_view(inputs.v, b, kv_head, 0, sizes.keys, sizes.head_size);
    const auto prefetch = [&](const Stage& into, int key) {
      load_tile_async(block, into.k(), all_k.from_row(key));
      load_tile_async(block, into.v(), all_v.from_row(key));
    };
    load_tile_async(block, q_tile,
                    head_view(inputs.q, b, h, first, sizes.queries, sizes.head_size));
    load_tile_async(block, dy_tile,
                    head_view(inputs.dy, b, h, first, sizes.queries, sizes.head_size));
    inputs.load_row_values(block, row_values, b, h, first);
    prefetch(current, 0);
    block.commit_copies();

    typename B::template Accumulator<T, rows, d> dq_sum(block);
    for (int key = 0; key < end; key += keys) {
      block.wait_copies(0);
      block.sync();  // the current stage is loaded; the other is no longer in use
      if (key + keys < end) prefetch(next, key + keys);
      block.commit_copies();
      const int diagonal = diagonal_in_tile(first + sizes.offset() + 1 - key);
      typename B::template Accumulator<T, rows, keys> p(block), ds(block);
      p.add_product(q_tile, transposed(current.k()));
      inputs.template to_probabilities<B>(
          p, diagonal >= keys, [&](ElementAt at) { return at.column < at.row + diagonal; },
          [&](ElementAt at) { return row_values.log_sums(0, at.row); });
      ds.add_product(dy_tile, transposed(current.v()));
      ds.for_each(
          p, [&](ElementAt at, float& x, float pi) { x = pi * (x - row_values.delta(0, at.row)); });
      dq_sum.add_product(ds, current.k());
      const Stage old = current;
      current = next, next = old;
    }

    // A thread overwrites its own rows of q_tile, which no thread of another row reads.
    dq_sum.for_each(
        [&](ElementAt at, float& x) { q_tile(at.row, at.column) = T(x * inputs.scale); });
    block.sync();
    store_tile(block, q_tile, head_view(dq, b, h, first, sizes.queries, sizes.head_size));
  }
};

}  // namespace ringside::autograd::cuda
