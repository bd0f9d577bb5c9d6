// embedding: rows of a table, chosen by ids.
#include <algorithm>
#include <numeric>
#include <vector>

#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/parallel.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/bf16.hpp"

namespace ringside::autograd {

namespace {

// The ids in ascending order, and of which token each is; tokens of one id in their own order: [2,
// tokens].
Tensor sorted(const Tensor& ids) {
  const std::int32_t* const id = ids.data<std::int32_t>();
  std::vector<std::int32_t> of_token(static_cast<std::size_t>(ids.elements()));
  std::iota(of_token.begin(), of_token.end(), 0);
  std::stable_sort(of_token.begin(), of_token.end(),
                   [&](std::int32_t a, std::int32_t b) { return id[a] < id[b]; });
  Tensor both = Tensor::empty({2, ids.elements()}, DType::int32);
  std::int32_t* const first = both.data<std::int32_t>();
  std::transform(of_token.begin(), of_token.end(), first, [&](std::int32_t t) { return id[t]; });
  std::copy(of_token.begin(), of_token.end(), first + ids.elements());
  return both;
}

Tensor embedding_on_device(const Tensor& ids, const Tensor& w, const Tensor& y) {
  device_kernels(w.device()).embedding(ids.to(w.device()), w, y);
  if (!grad_enabled() || !w.requires_grad()) return record("embedding", y, {w}, nullptr);
  // Sorted and sent now, when the device has little to do, and not in the middle of backward.
  return record("embedding", y, {w},
                [order = sorted(ids).to(w.device()), shape = w.shape()](
                    const Node&, const Tensor& grad) -> Gradients {
                  const Tensor dy = grad.contiguous(),
                               dw = Tensor::zeros(shape, dy.dtype(), dy.device());
                  device_kernels(dy.device()).embedding_backward(order, dy, dw);
                  return {dw};
                });
}

}  // namespace

// ids [...], weight [V, n] -> y [..., n], y[t] = weight[ids[t]].  dweight[v] = sum of dy[t] over
// the t with ids[t] = v
Tensor embedding(const Tensor& ids_input, const Tensor& weight) {
  require_ids("embedding", "ids", ids_input);
  require(weight.dim() == 2, "embedding: expected a weight [V, n], got {}", weight.shape());
  // On the host, whatever device the weight is on: here they are checked, and sorted for backward.
  const Tensor ids = ids_input.to(Device::cpu).contiguous(), w = weight.contiguous();
  const std::int64_t vocabulary = w.size(0), n = w.size(1), tokens = ids.elements();
  for (const std::int32_t id : ids.values<std::int32_t>())
    require(id >= 0 && id < vocabulary, "embedding: id {} is not in 0..{}", id, vocabulary - 1);

  Shape y_shape = ids.shape();
  y_shape.push_back(n);
  Tensor y = Tensor::empty(std::move(y_shape), w.dtype(), w.device());
  if (w.device() != Device::cpu) return embedding_on_device(ids, w, y);
  dispatch_stored(w.dtype(), "embedding", [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t t = 0; t < tokens; ++t)
      std::copy_n(w.data<T>() + ids.data<std::int32_t>()[t] * n, n, y.data<T>() + t * n);
  });
  return record(
      "embedding", y, {w},
      [ids, vocabulary, n, tokens](const Node&, const Tensor& grad) -> Gradients {
        const Tensor dy = wide(grad.contiguous()), dw = Tensor::zeros({vocabulary, n}, dy.dtype());
        dispatch(dy.dtype(), "embedding", [&](auto zero) {
          using T = decltype(zero);
          // Threads share out the columns, not the tokens: two tokens may have the same id.
          parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t t = 0; t < tokens; ++t) {
              const T* const from = dy.data<T>() + t * n;
              T* const to = dw.data<T>() + ids.data<std::int32_t>()[t] * n;
#pragma omp simd
              for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
            }
          });
        });
        return {rounded(dw, grad.dtype())};
      });
}

}  // namespace ringside::autograd
