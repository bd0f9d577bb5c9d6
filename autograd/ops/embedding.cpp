// embedding: rows of a table, selected by ids.
#include <algorithm>
#include <numeric>
#include <vector>

#include "autograd/engine/node.hpp"
#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/threads/parallel.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

// Ids of the whole vocabulary -> rows of a weight with `rows` rows; -1 for a row of another rank.
Tensor rows_here(const Tensor& ids, VocabularyRange range, std::int64_t rows) {
  const Tensor here = Tensor::empty(ids.shape(), DType::int32);
  std::transform(ids.values<std::int32_t>().begin(), ids.values<std::int32_t>().end(),
                 here.values<std::int32_t>().begin(), [&](std::int32_t id) {
                   const std::int64_t row = id - range.first;
                   return row >= 0 && row < rows ? static_cast<std::int32_t>(row) : -1;
                 });
  return here;
}

// [2, tokens]: the ids in ascending order, and the token of each; without those of id -1. Tokens
// with equal ids keep their order. A device sums each row of the gradient from this table.
Tensor sorted(const Tensor& ids) {
  const std::int32_t* const id = ids.data<std::int32_t>();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(ids.elements()));
  std::iota(tokens.begin(), tokens.end(), 0);
  std::erase_if(tokens, [&](std::int32_t t) { return id[t] < 0; });
  std::stable_sort(tokens.begin(), tokens.end(),
                   [&](std::int32_t a, std::int32_t b) { return id[a] < id[b]; });
  const auto count = static_cast<std::int64_t>(tokens.size());
  Tensor both = Tensor::empty({2, count}, DType::int32);
  std::int32_t* const first = both.data<std::int32_t>();
  std::transform(tokens.begin(), tokens.end(), first, [&](std::int32_t t) { return id[t]; });
  std::copy(tokens.begin(), tokens.end(), first + count);
  return both;
}

// y[t] = w[ids[t]], or zeros for id -1
void copy_rows(const Tensor& ids, const Tensor& w, const Tensor& y) {
  const std::int64_t n = w.size(1), tokens = ids.elements();
  const std::int32_t* const id = ids.data<std::int32_t>();
  dispatch_stored(w.dtype(), "embedding", [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t t = 0; t < tokens; ++t) {
      T* const row = y.data<T>() + t * n;
      if (id[t] < 0)
        std::fill_n(row, n, T{});
      else
        std::copy_n(w.data<T>() + id[t] * n, n, row);
    }
  });
}

// dw[ids[t]] += dy[t]; nothing for id -1. Threads divide the columns, not the tokens: two tokens
// may have the same id.
void add_rows(const Tensor& ids, const Tensor& dy_stored, const Tensor& dw_stored) {
  const Tensor dy = to_compute_dtype(dy_stored), dw = to_compute_dtype(dw_stored);
  const std::int64_t n = dw.size(1), tokens = ids.elements();
  const std::int32_t* const id = ids.data<std::int32_t>();
  dispatch(dy.dtype(), "embedding", [&](auto zero) {
    using T = decltype(zero);
    parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        if (id[t] < 0) continue;
        const T* const from = dy.data<T>() + t * n;
        T* const to = dw.data<T>() + id[t] * n;
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
      }
    });
  });
  convert_into(dw_stored, dw);
}

}  // namespace

// ids [...], weight [V, n] -> y [..., n], y[t] = weight[ids[t]]
//
//     dweight[v] = sum of dy[t] over the t with ids[t] = v
Tensor embedding(const Tensor& ids, const Tensor& weight) {
  return embedding(ids, weight, {0, weight.dim() == 2 ? weight.size(0) : 0});
}

// The same with weight [V_r, n], rows first .. first + V_r - 1 of V: y[t] = 0 for any other id.
Tensor embedding(const Tensor& ids_input, const Tensor& weight, VocabularyRange range) {
  require_ids("embedding", "ids", ids_input);
  require(weight.dim() == 2, "embedding: expected a weight [V, n], got {}", weight.shape());
  require_range("embedding", weight, range);
  // The host checks the ids, whatever device the weight is on.
  const Tensor all = ids_input.to(Device::cpu).contiguous(), w = weight.contiguous();
  for (const std::int32_t id : all.values<std::int32_t>())
    require(id >= 0 && id < range.whole, "embedding: id {} is not in 0..{}", id, range.whole - 1);
  const Tensor ids = range.whole == w.size(0) ? all : rows_here(all, range, w.size(0));

  Shape y_shape = ids.shape();
  y_shape.push_back(w.size(1));
  const Tensor y = Tensor::empty(std::move(y_shape), w.dtype(), w.device());
  Tensor index;  // saved for backward
  if (w.device() == Device::cpu) {
    copy_rows(ids, w, y);
    index = ids;
  } else {
    device_kernels(w.device()).embedding(ids.to(w.device()), w, y);
    // Sorted now, while the device has little to do, and not in the middle of backward.
    if (is_recorded({w})) index = sorted(ids).to(w.device());
  }

  return record("embedding", y, {w},
                [index, shape = w.shape()](const Node&, const Tensor& grad) -> Gradients {
                  const Tensor dy = grad.contiguous(),
                               dw = Tensor::zeros(shape, dy.dtype(), dy.device());
                  if (dy.device() == Device::cpu)
                    add_rows(index, dy, dw);
                  else
                    device_kernels(dy.device()).embedding_backward(index, dy, dw);
                  return {dw};
                });
}

}  // namespace ringside::autograd
