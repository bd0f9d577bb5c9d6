// Copies, conversions and fills.
#include <algorithm>

#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "autograd/kernels/cpu/for_each_element.hpp"
#include "autograd/kernels/rows.hpp"

namespace ringside::autograd {

namespace {

template <class From, class To>
void convert(const Tensor& x, const Tensor& y) {
  const From* const from = x.data<From>();
  To* const to = y.data<To>();
  // With equal strides, both tensors fill their memory in the same order.
  if (x.strides() == y.strides() || (x.is_contiguous() && y.is_contiguous()))
    return for_each_element(x.elements(), 1 << 16, [=](std::int64_t i) { to[i] = from[i]; });
  copy_strided(from, x.strides(), to, y.strides(), x.shape());
}

}  // namespace

void CpuKernels::copy(const Tensor& x, const Tensor& y) const {
  if (x.dtype() != y.dtype())
    return x.dtype() == DType::bf16 ? convert<Bf16, float>(x, y) : convert<float, Bf16>(x, y);
  dispatch_any(x.dtype(), "copy_", [&]<class T>(T) {
    copy_strided(x.data<T>(), x.strides(), y.data<T>(), y.strides(), x.shape());
  });
}

void CpuKernels::fill(const Tensor& x, double value) const {
  dispatch_any(x.dtype(), "fill_", [&]<class T>(T) {
    T* const begin = x.data<T>();
    parallel_for(x.elements(), 1 << 18, [&](std::int64_t first, std::int64_t last) {
      std::fill(begin + first, begin + last, static_cast<T>(value));
    });
  });
}

void CpuKernels::fill_with(const Tensor& x, const Tensor& factor, double constant) const {
  fill(x, constant * factor.item());
}

}  // namespace ringside::autograd
