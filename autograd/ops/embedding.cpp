// embedding: rows of a table, selected by ids.
#include <algorithm>

#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
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
  kernels_of(w).embedding(ids.to(w.device()), w, y);
  // backward, where a device is behind the host, sorts the ids. Here it would wait for them.
  return record("embedding", y, {w},
                [ids, shape = w.shape()](const Node& node, const Tensor& dy) -> Gradients {
                  const DeviceKernels& kernels = kernels_of(dy);
                  const Tensor dw = empty_gradient(node.edges()[0], shape, dy.dtype(), dy.device());
                  dw.fill_(0);
                  kernels.embedding_backward(kernels.embedding_index(ids), dy.contiguous(), dw);
                  return {dw};
                });
}

}  // namespace ringside::autograd
