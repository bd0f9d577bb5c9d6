#include "autograd/tensor/layout.hpp"

#include <algorithm>
#include <numeric>

#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/rows.hpp"
#include "autograd/tensor/bf16.hpp"

namespace ringside::autograd {

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

Tensor empty_in_order_of(const Tensor& x, DType dtype) {
  std::vector<std::size_t> order(
      x.shape().size());  // dimensions from the outermost in memory to the innermost
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

void accumulate_into(const Tensor& target, const Tensor& source) {
  require(target.shape() == source.shape(),
          "a gradient of shape {} cannot be added to one of shape {}", source.shape(),
          target.shape());
  require(target.device() == source.device(), "a gradient on {} cannot be added to one on {}",
          name_of(source.device()), name_of(target.device()));
  if (target.device() != Device::cpu)
    return device_kernels(target.device()).accumulate(target, source);
  dispatch_stored(target.dtype(), "accumulate_into", [&](auto zero) {
    using T = decltype(zero);
    T* const to = target.data<T>();
    const T* const from = source.data<T>();
    if (target.is_contiguous() && source.is_contiguous()) {
      parallel_for(target.elements(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) to[i] = to[i] + from[i];
      });
      return;
    }
    const Rows to_rows(target), from_rows(source);
    const std::int64_t n = to_rows.length(), to_step = to_rows.element_stride(),
                       from_step = from_rows.element_stride();
    parallel_for(to_rows.count(), row_grain(n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T* const t = to + to_rows.offset(row);
        const T* const f = from + from_rows.offset(row);
        for (std::int64_t i = 0; i < n; ++i) t[i * to_step] = t[i * to_step] + f[i * from_step];
      }
    });
  });
}

}  // namespace ringside::autograd
