// Checks of arguments that several ops share.
#pragma once

#include <algorithm>

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

// fp32 or fp64: the op does not take bf16.
inline void require_compute_dtype(const char* op, const Tensor& x) {
  dispatch(x.dtype(), op, [](auto) {});
}

inline void require_ids(const char* op, const char* what, const Tensor& ids) {
  require(ids.dtype() == DType::int32, "{}: expected {} of int32, got {} {}", op, what,
          name_of(ids.dtype()), ids.shape());
}

// Each of `targets`, int32 on the CPU, is ignore_index or in 0..vocabulary-1. Returns the count of
// a mean over them: how many are not ignore_index, and at least 1, where all losses are 0.
inline std::int64_t count_targets(const char* op, const Tensor& targets, std::int64_t vocabulary,
                                  std::int32_t ignore_index) {
  std::int64_t count = 0;
  for (const std::int32_t target : targets.values<std::int32_t>()) {
    if (target == ignore_index) continue;
    require(target >= 0 && target < vocabulary, "{}: target {} is not in 0..{}", op, target,
            vocabulary - 1);
    ++count;
  }
  return std::max<std::int64_t>(count, 1);
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
