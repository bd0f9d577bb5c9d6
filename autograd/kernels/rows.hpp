// Rows: iterates over tensors of any strides, one row (the last dimension) at a time.
//
// Ops loop over rows, and within a row over neighbours in memory, which vectorises. Rows computes
// where each row begins: at r * n in a contiguous tensor; in a transposed view from the indices of
// the leading dimensions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "autograd/kernels/threads/parallel.hpp"
#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// offset(r): where row r begins, in elements. Rows are numbered in the order of their indices.
class Rows {
 public:
  Rows(const Shape& shape, const Shape& strides) : shape_(shape), strides_(strides) {
    if (!shape_.empty()) {
      length_ = shape_.back();
      element_stride_ = length_ == 1 ? 1 : strides_.back();
      shape_.pop_back(), strides_.pop_back();
    }
    count_ = elements_of(shape_);
    // Adjacent dimensions are merged if their strides allow it; a contiguous tensor keeps one.
    for (std::size_t d = shape_.size(); d-- > 1;) {
      if (shape_[d] != 1 && shape_[d - 1] != 1 && strides_[d - 1] != strides_[d] * shape_[d])
        continue;
      if (shape_[d] != 1) strides_[d - 1] = strides_[d];
      shape_[d - 1] *= shape_[d];
      shape_.erase(shape_.begin() + static_cast<std::ptrdiff_t>(d));
      strides_.erase(strides_.begin() + static_cast<std::ptrdiff_t>(d));
    }
  }
  explicit Rows(const Tensor& tensor) : Rows(tensor.shape(), tensor.strides()) {}

  std::int64_t count() const { return count_; }
  std::int64_t length() const { return length_; }
  std::int64_t element_stride() const { return element_stride_; }

  std::int64_t offset(std::int64_t row) const {
    if (shape_.size() == 1) return row * strides_[0];
    std::int64_t offset = 0;
    for (std::size_t d = shape_.size(); d-- > 0;) {
      offset += row % shape_[d] * strides_[d];
      row /= shape_[d];
    }
    return offset;
  }

 private:
  Shape shape_, strides_;  // without the last dimension
  std::int64_t count_ = 0, length_ = 1, element_stride_ = 1;
};

// How many rows are enough work for one more thread.
inline std::int64_t row_grain(std::int64_t row_length) {
  return std::max<std::int64_t>(1, (1 << 15) / std::max<std::int64_t>(1, row_length));
}

// to[index] = from[index] for every index of `shape`.
template <class From, class To>
void copy_strided(const From* from, const Shape& from_strides, To* to, const Shape& to_strides,
                  const Shape& shape) {
  const Rows source(shape, from_strides), target(shape, to_strides);
  const std::int64_t n = source.length(), source_step = source.element_stride(),
                     target_step = target.element_stride();
  parallel_for(source.count(), row_grain(n), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const From* const s = from + source.offset(row);
      To* const t = to + target.offset(row);
      if (source_step == 1 && target_step == 1)
        std::copy_n(s, n, t);
      else
        for (std::int64_t i = 0; i < n; ++i) t[i * target_step] = s[i * source_step];
    }
  });
}

}  // namespace ringside::autograd
