#include "autograd/tensor/layout.hpp"

#include <algorithm>
#include <numeric>

#include "autograd/tensor/tensor_impl.hpp"

namespace ringside::autograd {

Shape row_major_strides(const Shape& shape) {
  Shape strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= shape[d];
  }
  return strides;
}

bool is_row_major(const Shape& shape, const Shape& strides) {
  bool row_major = true;
  std::int64_t expected = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 0) return true;
    if (shape[d] != 1 && strides[d] != expected) row_major = false;
    expected *= shape[d];
  }
  return row_major;
}

Shape stretched_strides(const Shape& from, const Shape& strides, const Shape& to) {
  Shape result(to.size(), 0);
  for (std::size_t i = 1; i <= from.size(); ++i)
    if (from[from.size() - i] != 1) result[to.size() - i] = strides[from.size() - i];
  return result;
}

Tensor make_view(const Tensor& base, std::int64_t offset, Shape shape, Shape strides) {
  auto impl = std::make_shared<Tensor::Impl>();
  impl->storage = base.impl().storage;
  impl->offset = offset;
  impl->elements = elements_of(shape);
  impl->contiguous = is_row_major(shape, strides);
  impl->shape = std::move(shape);
  impl->strides = std::move(strides);
  impl->dtype = base.impl().dtype;
  return Tensor(std::move(impl));
}

Tensor empty_like(const Tensor& x) {
  return Tensor::empty(x.shape(), x.dtype(), x.device());
}

Tensor empty_in_order_of(const Tensor& x, DType dtype) {
  // The dimensions from the outermost in memory to the innermost.
  std::vector<std::size_t> order(x.shape().size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return x.strides()[a] > x.strides()[b]; });
  Shape strides(order.size());
  std::int64_t stride = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= x.shape()[order[i]];
  }
  return make_view(Tensor::empty(x.shape(), dtype, x.device()), 0, x.shape(), std::move(strides));
}

Tensor with_dense_rows(const Tensor& x) {
  return x.dim() == 0 || x.size(-1) == 1 || x.strides().back() == 1 ? x : x.contiguous();
}

}  // namespace ringside::autograd
