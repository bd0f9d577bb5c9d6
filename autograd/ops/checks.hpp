// Checks of arguments that several ops share.
#pragma once

#include "autograd/ops/vocabulary.hpp"
#include "autograd/tensor/tensor.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

// One dtype and one device.
inline void require_alike(const char* op, const Tensor& a, const Tensor& b) {
  require(a.dtype() == b.dtype(), "{}: expected tensors of one type, got {} {} and {} {}", op,
          name_of(a.dtype()), a.shape(), name_of(b.dtype()), b.shape());
  require(a.device() == b.device(),
          "{}: expected tensors on one device, got {} on {} and {} on {}; move one with .to()", op,
          a.shape(), name_of(a.device()), b.shape(), name_of(b.device()));
}

inline void require_same_shape(const char* op, const Tensor& a, const Tensor& b) {
  require(a.shape() == b.shape(), "{}: expected tensors of one shape, got {} and {}", op, a.shape(),
          b.shape());
}

inline void require_ids(const char* op, const char* what, const Tensor& ids) {
  require(ids.dtype() == DType::int32, "{}: expected {} of int32, got {} {}", op, what,
          name_of(ids.dtype()), ids.shape());
}

// The rows of `weight` [V_r, n] are a range of the vocabulary.
inline void require_range(const char* op, const Tensor& weight, VocabularyRange range) {
  const std::int64_t end = range.first + weight.size(0);
  require(range.first >= 0 && end <= range.whole,
          "{}: a weight {} that begins at row {} ends at row {}, beyond a vocabulary of {}", op,
          weight.shape(), range.first, end, range.whole);
}

// The shape without its last dimension: how many rows a tensor has, and in which order.
inline Shape leading(const Shape& shape) {
  return Shape(shape.begin(), shape.end() - 1);
}

}  // namespace ringside::autograd
