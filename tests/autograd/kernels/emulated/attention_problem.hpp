// An attention problem with random inputs: its solution by the kernels, and by the definition in
// fp64.
#pragma once

#include <cmath>
#include <vector>

#include "autograd/kernels/shared/attention_backward.hpp"
#include "tests/autograd/kernels/emulated/emulations.hpp"

namespace ringside::tests {

using namespace autograd::cuda;

struct AttentionCase {
  std::int64_t batch, heads, kv_heads, queries, keys;
  int head_size;
  // Rows are stored as in [B, T, H, D], with 3 elements between them, so that they are not aligned
  // to 16 bytes.
  bool padded_rows = false;
};

template <class S>
struct AttentionProblem {
  explicit AttentionProblem(const AttentionCase& attention_case)
      : c(attention_case),
        sizes{c.batch, c.heads, c.kv_heads, c.queries, c.keys, c.head_size},
        q(numbers<S>(length(c.heads, c.queries), 1)),
        k(numbers<S>(length(c.kv_heads, c.keys), 2)),
        v(numbers<S>(length(c.kv_heads, c.keys), 3)),
        dy(numbers<S>(length(c.heads, c.queries), 4)),
        y(q.size()),
        dq(q.size()),
        dk(k.size()),
        dv(k.size()),
        log_sums(static_cast<std::size_t>(c.batch * c.heads * c.queries)),
        delta(log_sums.size()) {
    for (S& x : q) x = S(4.0f * static_cast<float>(x));  // spreads the probabilities
  }

  std::int64_t row() const { return c.head_size + (c.padded_rows ? 3 : 0); }
  std::int64_t length(std::int64_t heads, std::int64_t tokens) const {
    return c.batch * heads * tokens * row();
  }

  // [B, H, T, D], or a view of [B, T, H, D].
  template <class T>
  Heads<T> heads_of(T* data, std::int64_t heads, std::int64_t tokens) const {
    return c.padded_rows ? Heads<T>{data, tokens * heads * row(), row(), heads * row()}
                         : Heads<T>{data, heads * tokens * row(), tokens * row(), row()};
  }
  Heads<const S> queries_of(const std::vector<S>& x) const {
    return heads_of(x.data(), c.heads, c.queries);
  }
  Heads<const S> keys_of(const std::vector<S>& x) const {
    return heads_of(x.data(), c.kv_heads, c.keys);
  }

  float scale() const {
    return static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_size)));
  }

  template <class B>
  void forward(Emulation emulation) {
    with_padded_head_size(c.head_size, [&](auto d) {
      const AttentionForward<S, d.value> kernel{
          sizes,          scale(),    queries_of(q),
          keys_of(k),     keys_of(v), heads_of(y.data(), c.heads, c.queries),
          log_sums.data()};
      launch_emulated<B>(kernel, kernel.blocks(), emulation);
    });
  }
  template <class B>
  void compute_delta(Emulation emulation) {
    const AttentionDelta<S> kernel{sizes, queries_of(dy), queries_of(y), delta.data()};
    launch_emulated<B>(kernel, kernel.blocks(), emulation);
  }
  AttentionBackwardInputs<S> gradients() const {
    return {sizes,      scale(),        queries_of(q),   keys_of(k),
            keys_of(v), queries_of(dy), log_sums.data(), delta.data()};
  }
  template <class B>
  void keys_backward(Emulation emulation) {
    with_padded_head_size(c.head_size, [&](auto d) {
      const AttentionKeysBackward<S, d.value> kernel{gradients(),
                                                     heads_of(dk.data(), c.kv_heads, c.keys),
                                                     heads_of(dv.data(), c.kv_heads, c.keys)};
      launch_emulated<B>(kernel, kernel.blocks(), emulation);
    });
  }
  template <class B>
  void queries_backward(Emulation emulation) {
    with_padded_head_size(c.head_size, [&](auto d) {
      const AttentionQueriesBackward<S, d.value> kernel{gradients(),
                                                        heads_of(dq.data(), c.heads, c.queries)};
      launch_emulated<B>(kernel, kernel.blocks(), emulation);
    });
  }

  // The definition of attention and of its derivatives.
  struct Expected {
    std::vector<double> y, log_sums, delta, dq, dk, dv;
  };
  Expected expected() const {
    Expected e{std::vector<double>(q.size()),
               {},
               {},
               std::vector<double>(q.size()),
               std::vector<double>(k.size()),
               std::vector<double>(k.size())};
    for (std::int64_t b = 0; b < c.batch; ++b)
      for (std::int64_t h = 0; h < c.heads; ++h)
        for (std::int64_t i = 0; i < c.queries; ++i) expect_row(e, b, h, i);
    return e;
  }

  void expect_row(Expected& e, std::int64_t b, std::int64_t h, std::int64_t i) const {
    const std::int64_t kv = h / (c.heads / c.kv_heads), visible = i + 1 + c.keys - c.queries;
    const double factor = 1 / std::sqrt(static_cast<double>(c.head_size));
    const auto query = static_cast<std::size_t>(queries_of(q).row(b, h, i) - q.data());
    const auto key = [&](std::int64_t j) {
      return static_cast<std::size_t>(keys_of(k).row(b, kv, j) - k.data());
    };
    const auto d = static_cast<std::size_t>(c.head_size);
    const auto dot = [d](const auto& x, std::size_t xi, const auto& z, std::size_t zi) {
      double sum = 0;
      for (std::size_t n = 0; n < d; ++n)
        sum += static_cast<double>(float(x[xi + n])) * static_cast<double>(float(z[zi + n]));
      return sum;
    };
    std::vector<double> p, dp;
    double total = 0, row_delta = 0;
    for (std::int64_t j = 0; j < visible; ++j) {
      p.push_back(std::exp(dot(q, query, k, key(j)) * factor));
      dp.push_back(dot(dy, query, v, key(j)));
      total += p.back();
    }
    for (std::size_t j = 0; j < p.size(); ++j) {
      p[j] /= total;
      row_delta += p[j] * dp[j];
      for (std::size_t n = 0; n < d; ++n)
        e.y[query + n] +=
            p[j] * static_cast<double>(float(v[key(static_cast<std::int64_t>(j)) + n]));
    }
    for (std::size_t j = 0; j < p.size(); ++j) {
      const double ds = p[j] * (dp[j] - row_delta) * factor;
      const std::size_t at = key(static_cast<std::int64_t>(j));
      for (std::size_t n = 0; n < d; ++n) {
        e.dq[query + n] += ds * static_cast<double>(float(k[at + n]));
        e.dk[at + n] += ds * static_cast<double>(float(q[query + n]));
        e.dv[at + n] += p[j] * static_cast<double>(float(dy[query + n]));
      }
    }
    e.log_sums.push_back(std::log(total));
    e.delta.push_back(row_delta);
  }

  AttentionCase c;
  AttentionSizes sizes;
  std::vector<S> q, k, v, dy, y, dq, dk, dv;
  std::vector<float> log_sums, delta;
};

}  // namespace ringside::tests
