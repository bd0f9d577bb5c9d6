// Layout: the order in which the elements of a tensor lie in memory. Ops use these functions to
// read and write views directly, without a contiguous copy.
#pragma once

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// The strides of a contiguous row-major array, and whether `strides` are these. The stride of a
// dimension of size 1 does not matter, and an empty array is always contiguous.
Shape row_major_strides(const Shape& shape);
bool is_row_major(const Shape& shape, const Shape& strides);

// The strides that read a tensor of shape `from` as one of shape `to`, broadcast as in NumPy: 0 in
// each stretched dimension.
Shape stretched_strides(const Shape& from, const Shape& strides, const Shape& to);

// Another view of the memory of `base`, without history. `offset` counts elements from the start of
// the storage. The bounds are not checked.
Tensor make_view(const Tensor& base, std::int64_t offset, Shape shape, Shape strides);

// New tensors of x's shape and device, contents undefined: empty_like is contiguous;
// empty_in_order_of keeps the memory order of x's dimensions, so a transposed view gives a
// transposed view.
Tensor empty_like(const Tensor& x);
Tensor empty_in_order_of(const Tensor& x, DType dtype);
inline Tensor empty_in_order_of(const Tensor& x) {
  return empty_in_order_of(x, x.dtype());
}

// x itself if the elements of each row (last dimension) are neighbours in memory, otherwise
// x.contiguous().
Tensor with_dense_rows(const Tensor& x);

}  // namespace ringside::autograd
