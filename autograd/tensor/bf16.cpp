#include "autograd/tensor/bf16.hpp"

#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/rows.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {
namespace {

template <class From, class To>
void convert(const Tensor& source, const Tensor& target) {
  const From* const from = source.data<From>();
  To* const to = target.data<To>();
  if (source.strides() == target.strides() ||
      (source.is_contiguous() && target.is_contiguous())) {  // both fill their memory alike
    parallel_for(source.elements(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) to[i] = from[i];
    });
    return;
  }
  const Rows from_rows(source), to_rows(target);
  const std::int64_t n = from_rows.length(), from_step = from_rows.element_stride(),
                     to_step = to_rows.element_stride();
  parallel_for(from_rows.count(), row_grain(n), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const From* const f = from + from_rows.offset(row);
      To* const t = to + to_rows.offset(row);
      for (std::int64_t i = 0; i < n; ++i) t[i * to_step] = f[i * from_step];
    }
  });
}

}  // namespace

Tensor wide(const Tensor& x) {
  if (!x.defined() || x.dtype() != DType::bf16) return x;
  Tensor y = empty_in_order_of(x, DType::fp32);
  x.device() == Device::cpu ? convert<Bf16, float>(x, y) : device_kernels(x.device()).copy(x, y);
  return y;
}

Tensor rounded(const Tensor& x, DType type) {
  if (!x.defined() || type != DType::bf16) return x;
  Tensor y = empty_in_order_of(x, DType::bf16);
  x.device() == Device::cpu ? convert<float, Bf16>(x, y) : device_kernels(x.device()).copy(x, y);
  return y;
}

}  // namespace ringside::autograd
