// Where the elements of a tensor lie: tools for the ops that read and write views as they are,
// without copying them first.
#pragma once

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// Whether `strides` are those of a contiguous row-major array. The stride of a dimension of size 1
// does not matter, and an empty array is contiguous always.
bool is_row_major(const Shape& shape, const Shape& strides);

// The strides with which a tensor of shape `from` is read as one of shape `to` (as in NumPy): 0
// where it is stretched.
Shape stretched_strides(const Shape& from, const Shape& strides, const Shape& to);

// The memory of `base` seen in another way, without history. The caller answers for the bounds.
// `offset` from the start of the storage.
Tensor make_view(const Tensor& base, std::int64_t offset, Shape shape, Shape strides);

// A new tensor of x's shape whose dimensions follow each other in memory as x's do: a transposed
// view stays transposed.
Tensor empty_in_order_of(const Tensor& x, DType dtype);
inline Tensor empty_in_order_of(const Tensor& x) {
  return empty_in_order_of(x, x.dtype());
}

// x itself if the numbers of each row (last dimension) are neighbours in memory, else
// x.contiguous().
Tensor with_dense_rows(const Tensor& x);

// target += source, same shapes, any strides.
void accumulate_into(const Tensor& target, const Tensor& source);

}  // namespace ringside::autograd
