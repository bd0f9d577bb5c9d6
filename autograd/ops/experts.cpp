#include "autograd/ops/experts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/engine/deferred_gradients.hpp"
#include "autograd/engine/node.hpp"
#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

void require_choices(const char* op, const Tensor& chosen, std::int64_t experts) {
  require_ids(op, "choices", chosen);
  require(chosen.dim() == 2, "{}: expected choices [N, K], got {}", op, chosen.shape());
  for (const std::int32_t expert : chosen.values<std::int32_t>())
    require(expert >= 0 && expert < experts, "{}: expert {} is not in 0..{}", op, expert,
            experts - 1);
}

// On the CPU, where a router's few numbers are read, and in a dtype to compute with.
Tensor on_host(const Tensor& x) {
  return to_compute_dtype(x.detach().to(Device::cpu).contiguous());
}

// p = softmax(row)
template <class T>
void softmax_of(const T* row, std::int64_t count, std::vector<T>& p) {
  const T top = *std::max_element(row, row + count);
  for (std::int64_t i = 0; i < count; ++i) p[i] = std::exp(row[i] - top);
  const T sum = std::accumulate(p.begin(), p.end(), T(0));
  for (T& each : p) each /= sum;
}

// The matrix of `count` rows of x [rows, n] from `begin` on, without history.
Tensor rows_of(const Tensor& x, std::int64_t begin, std::int64_t count) {
  const std::int64_t n = x.size(1);
  return make_view(x, x.offset() + begin * n, {count, n}, {n, 1});
}

// Adds the gradient of the balance loss to that of the logits: with g = d loss / d p,
//
//     g[t, i] = weight E counts[s, i] / T / (tokens here)        of token t in sequence s
//     dlogits[t] += p (g - sum over i of p g)
template <class T>
void add_balance_gradient(const Tensor& logits, std::int64_t per_token, const LoadBalance& balance,
                          const Tensor& dlogits) {
  const std::int64_t tokens = logits.size(0), experts = logits.size(1),
                     sequences = balance.counts.size(0), each = tokens / sequences;
  std::vector<T> p(experts);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const double* const counts = balance.counts.data<double>() + t / each * experts;
    const double whole = std::accumulate(counts, counts + experts, 0.0) / per_token;  // tokens
    const double factor = balance.weight * static_cast<double>(experts) / whole / tokens;
    softmax_of(logits.data<T>() + t * experts, experts, p);
    T* const dlogit = dlogits.data<T>() + t * experts;
    T mean = 0;
    for (std::int64_t i = 0; i < experts; ++i) mean += p[i] * static_cast<T>(factor * counts[i]);
    for (std::int64_t i = 0; i < experts; ++i)
      dlogit[i] += p[i] * (static_cast<T>(factor * counts[i]) - mean);
  }
}

}  // namespace

Tensor choose_experts(const Tensor& logits, std::int64_t per_token) {
  require(logits.dim() == 2 && per_token >= 1 && per_token <= logits.size(1),
          "choose_experts: expected logits [N, E] with E of at least {}, got {}", per_token,
          logits.shape());
  const Tensor host = on_host(logits);
  const std::int64_t tokens = host.size(0), experts = host.size(1);
  const Tensor chosen = Tensor::empty({tokens, per_token}, DType::int32);
  dispatch(host.dtype(), "choose_experts", [&]<class T>(T) {
    std::vector<std::int32_t> order(experts);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const T* const row = host.data<T>() + t * experts;
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + per_token, order.end(), [row](int a, int b) {
        return row[a] > row[b] || (row[a] == row[b] && a < b);
      });
      std::copy_n(order.begin(), per_token, chosen.data<std::int32_t>() + t * per_token);
    }
  });
  return chosen;
}

ExpertOrder sort_by_expert(const Tensor& chosen, std::int64_t experts) {
  require_choices("sort_by_expert", chosen, experts);
  const auto choices = chosen.values<std::int32_t>();
  ExpertOrder order{Tensor::empty({chosen.elements()}, DType::int32),
                    Tensor::empty(chosen.shape(), DType::int32),
                    std::vector<std::int64_t>(experts)};
  for (const std::int32_t expert : choices) ++order.counts[expert];
  std::vector<std::int64_t> next(experts);  // the next free row of each expert
  std::exclusive_scan(order.counts.begin(), order.counts.end(), next.begin(), std::int64_t{0});
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::int64_t row = next[choices[i]]++;
    order.places.data<std::int32_t>()[i] = static_cast<std::int32_t>(row);
    order.tokens.data<std::int32_t>()[row] =
        static_cast<std::int32_t>(static_cast<std::int64_t>(i) / chosen.size(1));
  }
  return order;
}

Tensor choices_of_sequences(const Tensor& chosen, std::int64_t sequences, std::int64_t experts) {
  require_choices("choices_of_sequences", chosen, experts);
  require(sequences >= 1 && chosen.size(0) % sequences == 0,
          "choices_of_sequences: {} tokens are not {} sequences of equal length", chosen.size(0),
          sequences);
  const Tensor counts = Tensor::zeros({sequences, experts}, DType::fp64);
  const std::int64_t each = chosen.elements() / sequences;
  for (std::int64_t i = 0; i < chosen.elements(); ++i)
    ++counts.data<double>()[i / each * experts + chosen.data<std::int32_t>()[i]];
  return counts;
}

double load_balance_loss(const Tensor& logits, const Tensor& counts) {
  const Tensor host = on_host(logits);
  const std::int64_t tokens = host.size(0), experts = host.size(1), sequences = counts.size(0),
                     each = tokens / sequences;
  double loss = 0;
  dispatch(host.dtype(), "load_balance_loss", [&]<class T>(T) {
    std::vector<T> p(experts);
    for (std::int64_t t = 0; t < tokens; ++t) {
      softmax_of(host.data<T>() + t * experts, experts, p);
      for (std::int64_t i = 0; i < experts; ++i)
        loss += counts.data<double>()[t / each * experts + i] * p[i];
    }
  });
  return loss * static_cast<double>(experts) / static_cast<double>(each * tokens);
}

// w = softmax over the chosen logits:   dl[chosen j] = w[j] (dw[j] - sum over k of w[k] dw[k])
Tensor routing_weights(const Tensor& logits, const Tensor& chosen, const LoadBalance& balance) {
  require(logits.dim() == 2 && chosen.dim() == 2 && logits.size(0) == chosen.size(0),
          "routing_weights: expected logits [N, E] and choices [N, K], got {} and {}",
          logits.shape(), chosen.shape());
  const std::int64_t tokens = chosen.size(0), per_token = chosen.size(1), experts = logits.size(1);
  require_choices("routing_weights", chosen, experts);
  require(balance.weight == 0 ||
              (balance.counts.defined() && balance.counts.dim() == 2 &&
               balance.counts.size(1) == experts && tokens % balance.counts.size(0) == 0),
          "routing_weights: the balance of {} experts needs counts [sequences, {}]", experts,
          experts);
  const Tensor host = on_host(logits), w = Tensor::empty(chosen.shape(), host.dtype());
  dispatch(host.dtype(), "routing_weights", [&]<class T>(T) {
    std::vector<T> of_token(per_token), p(per_token);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int32_t* const choice = chosen.data<std::int32_t>() + t * per_token;
      for (std::int64_t j = 0; j < per_token; ++j)
        of_token[j] = host.data<T>()[t * experts + choice[j]];
      softmax_of(of_token.data(), per_token, p);
      std::copy(p.begin(), p.end(), w.data<T>() + t * per_token);
    }
  });
  const Tensor weights = to_storage_dtype(w, logits.dtype()).to(logits.device());
  return record(
      "routing_weights", weights.is_same(w) ? w.clone() : weights, {logits},
      [=, dtype = logits.dtype(), device = logits.device()](const Node&,
                                                            const Tensor& grad) -> Gradients {
        const Tensor dw = on_host(grad), dlogits = Tensor::zeros(host.shape(), host.dtype());
        dispatch(host.dtype(), "routing_weights", [&]<class T>(T) {
          for (std::int64_t t = 0; t < tokens; ++t) {
            const std::int32_t* const choice = chosen.data<std::int32_t>() + t * per_token;
            const T *const w_row = w.data<T>() + t * per_token, *const dw_row =
                                                                    dw.data<T>() + t * per_token;
            const T mean = std::inner_product(w_row, w_row + per_token, dw_row, T(0));
            for (std::int64_t j = 0; j < per_token; ++j)
              dlogits.data<T>()[t * experts + choice[j]] = w_row[j] * (dw_row[j] - mean);
          }
          if (balance.weight != 0) add_balance_gradient<T>(host, per_token, balance, dlogits);
        });
        return {to_storage_dtype(dlogits, dtype).to(device)};
      });
}

// Group e: y_e = x_e W_e^T, dx_e = dy_e W_e, dW_e = dy_e^T x_e
Tensor grouped_linear(const Tensor& x_input, std::span<const Tensor> weights,
                      std::span<const std::int64_t> counts) {
  require(!weights.empty() && weights.size() == counts.size() && x_input.dim() == 2 &&
              x_input.size(0) == std::accumulate(counts.begin(), counts.end(), std::int64_t{0}),
          "grouped_linear: expected x [rows, in], and {} matrices with as many counts whose sum is "
          "the number of rows; got {} and {} counts",
          weights.size(), x_input.shape(), counts.size());
  const std::int64_t in = x_input.size(1), out = weights[0].size(0);
  const Tensor x = x_input.contiguous();
  std::vector<Tensor> all{x};
  for (const Tensor& weight : weights) {
    require_alike("grouped_linear", x, weight);
    require(weight.shape() == Shape{out, in}, "grouped_linear: expected matrices {}, got {}",
            Shape{out, in}, weight.shape());
    all.push_back(weight.contiguous());
  }
  const std::vector<std::int64_t> rows(counts.begin(), counts.end());
  const auto for_each_group = [rows](auto&& body) {  // body(input of the node, first row, rows)
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < rows.size(); begin += rows[i++]) body(i + 1, begin, rows[i]);
  };
  const Tensor y = Tensor::empty({x.size(0), out}, x.dtype(), x.device());
  for_each_group([&](std::size_t i, std::int64_t begin, std::int64_t m) {
    if (m == 0) return;
    multiply({.b = Transpose::yes, .m = m, .n = out, .k = in}, rows_of(x, begin, m), all[i],
             rows_of(y, begin, m));
  });
  return record("grouped_linear", y, all, [=](const Node& node, const Tensor& grad) -> Gradients {
    const Tensor dy = grad.contiguous();
    Gradients gradients(all.size());
    if (node.needs(0)) gradients[0] = empty_like(x);
    for_each_group([&](std::size_t i, std::int64_t begin, std::int64_t m) {
      if (node.needs(0) && m > 0)
        multiply({.m = m, .n = in, .k = out}, rows_of(dy, begin, m), all[i],
                 rows_of(gradients[0], begin, m));
      if (!node.needs(i)) return;
      gradients[i] = DeferredGradients::compute_or_defer(node, i, [=, to = node.edges()[i]] {
        if (m == 0) return Tensor::zeros({out, in}, x.dtype(), x.device());
        const Tensor dw = empty_gradient(to, {out, in}, x.dtype(), x.device());
        multiply({.a = Transpose::yes, .m = out, .n = in, .k = m}, rows_of(dy, begin, m),
                 rows_of(x, begin, m), dw);
        return dw;
      });
    });
    return gradients;
  });
}

// With r[t, j] = rows[places[t, j]]:
//
//     drows[places[t, j]] = weights[t, j] dy[t]        dweights[t, j] = r[t, j] . dy[t]
Tensor combine_experts(const Tensor& rows_input, const Tensor& places, const Tensor& weights) {
  require_ids("combine_experts", "places", places);
  require_alike("combine_experts", rows_input, weights);
  require(rows_input.dim() == 2 && places.dim() == 2 && places.shape() == weights.shape(),
          "combine_experts: expected rows [M, n], places and weights [N, K], got {}, {} and {}",
          rows_input.shape(), places.shape(), weights.shape());
  const std::int64_t tokens = places.size(0), per_token = places.size(1), n = rows_input.size(1);
  const Tensor rows = rows_input.contiguous(), index = places.reshape({tokens * per_token});
  const auto weights_of_rows = make_view(weights.contiguous(), weights.contiguous().offset(),
                                         {tokens, per_token, 1}, {per_token, 1, 1});
  const DeviceKernels& kernels = kernels_of(rows);
  const auto gathered = [=, &kernels] {  // r [N, K, n]
    const Tensor r = Tensor::empty({tokens, per_token, n}, rows.dtype(), rows.device());
    kernels.embedding(index.to(rows.device()), rows, r);
    return r;
  };
  const Tensor y = Tensor::empty({tokens, 1, n}, rows.dtype(), rows.device()), r = gathered();
  kernels.multiply(r, weights_of_rows, r);
  kernels.sum_to(r, y);
  return record("combine_experts", make_view(y, y.offset(), {tokens, n}, {n, 1}), {rows, weights},
                [=, &kernels](const Node& node, const Tensor& grad) -> Gradients {
                  const Tensor dense = grad.contiguous(),
                               dy = make_view(dense, dense.offset(), {tokens, 1, n}, {n, n, 1});
                  Tensor drows, dweights;
                  const Tensor product = gathered();
                  if (node.needs(1)) {
                    kernels.multiply(product, dy, product);
                    dweights = Tensor::empty({tokens, per_token, 1}, rows.dtype(), rows.device());
                    kernels.sum_to(product, dweights);
                    dweights = dweights.reshape({tokens, per_token});
                  }
                  if (node.needs(0)) {
                    kernels.multiply(dy, weights_of_rows, product);
                    drows = Tensor::zeros(rows.shape(), rows.dtype(), rows.device());
                    kernels.embedding_backward(
                        kernels.embedding_index(index),
                        make_view(product, product.offset(), {tokens * per_token, n}, {n, 1}),
                        drows);
                  }
                  return {drows, dweights};
                });
}

}  // namespace ringside::autograd
