// embedding: rows of a table, chosen by ids.
#include <algorithm>

#include "autograd/bf16.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/parallel.hpp"

namespace ringside::autograd {

// ids [...], weight [V, n] -> y [..., n], y[t] = weight[ids[t]].  dweight[v] = sum of dy[t] over the t with ids[t] = v
Tensor embedding(const Tensor& ids_input, const Tensor& weight) {
  require_ids("embedding", "ids", ids_input);
  require(weight.dim() == 2, "embedding: expected a weight [V, n], got {}", weight.shape());
  const Tensor ids = ids_input.contiguous(), w = weight.contiguous();
  const std::int64_t vocabulary = w.size(0), n = w.size(1), tokens = ids.elements();
  for (const std::int32_t id : ids.values<std::int32_t>())
    require(id >= 0 && id < vocabulary, "embedding: id {} is not in 0..{}", id, vocabulary - 1);

  Shape y_shape = ids.shape();
  y_shape.push_back(n);
  Tensor y = Tensor::empty(std::move(y_shape), w.dtype());
  dispatch_stored(w.dtype(), "embedding", [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t t = 0; t < tokens; ++t) std::copy_n(w.data<T>() + ids.data<std::int32_t>()[t] * n, n, y.data<T>() + t * n);
  });
  return record("embedding", y, {w}, [ids, vocabulary, n, tokens](const Node&, const Tensor& grad) -> Gradients {
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
