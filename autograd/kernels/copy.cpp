#include "autograd/kernels/copy.hpp"

#include <algorithm>

#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/rows.hpp"
#include "autograd/tensor/device_memory.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

// Between the host and a device, or between two devices. Only contiguous bytes are transferred: a
// tensor that is not contiguous is first copied where it is.
void copy_across(const Tensor& source, const Tensor& target) {
  if (source.device() != Device::cpu && target.device() != Device::cpu)
    return target.copy_(source.to(Device::cpu));
  if (!target.is_contiguous()) return target.copy_(source.to(target.device()));
  const NoGrad no_history;
  const Tensor dense = source.contiguous();
  const std::size_t bytes = static_cast<std::size_t>(dense.elements()) * size_of(dense.dtype());
  if (target.device() == Device::cpu)
    device_memory(source.device()).copy_out(target.address(), dense.address(), bytes);
  else
    device_memory(target.device()).copy_in(target.address(), dense.address(), bytes);
}

template <class From, class To>
void convert(const Tensor& target, const Tensor& source) {
  const From* const from = source.data<From>();
  To* const to = target.data<To>();
  // With equal strides, both tensors fill their memory in the same order.
  if (source.strides() == target.strides() || (source.is_contiguous() && target.is_contiguous())) {
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

void Tensor::copy_(const Tensor& source) const {
  require(source.shape() == shape() && source.dtype() == dtype(),
          "copy_: expected {} {}, got {} {}", name_of(dtype()), shape(), name_of(source.dtype()),
          source.shape());
  if (is_same(source) || elements() == 0) return;
  if (source.device() != device()) return copy_across(source, *this);
  if (device() != Device::cpu) return device_kernels(device()).copy(source, *this);
  const auto copy = [&](auto zero) {
    using T = decltype(zero);
    copy_strided(source.data<T>(), source.strides(), data<T>(), strides(), shape());
  };
  dtype() == DType::int32 ? copy(std::int32_t{}) : dispatch_stored(dtype(), "copy_", copy);
}

void Tensor::fill_(double value) const {
  require(is_contiguous(), "fill_: expected a contiguous tensor, got shape {} with strides {}",
          shape(), strides());
  if (device() != Device::cpu) return device_kernels(device()).fill(*this, value);
  const auto fill = [&](auto zero) {
    using T = decltype(zero);
    T* const begin = data<T>();
    parallel_for(elements(), 1 << 18, [&](std::int64_t first, std::int64_t last) {
      std::fill(begin + first, begin + last, static_cast<T>(value));
    });
  };
  dtype() == DType::int32 ? fill(std::int32_t{}) : dispatch_stored(dtype(), "fill_", fill);
}

void convert_into(const Tensor& target, const Tensor& source) {
  if (target.dtype() == source.dtype()) return target.copy_(source);
  if (target.device() != Device::cpu) return device_kernels(target.device()).copy(source, target);
  if (source.dtype() == DType::bf16)
    convert<Bf16, float>(target, source);
  else
    convert<float, Bf16>(target, source);
}

Tensor to_compute_dtype(const Tensor& x) {
  if (!x.defined() || x.dtype() != DType::bf16) return x;
  const Tensor y = empty_in_order_of(x, DType::fp32);
  convert_into(y, x);
  return y;
}

Tensor compute_buffer(const Tensor& target) {
  const DType computed = compute_dtype(target.dtype());
  return target.dtype() == computed ? target : empty_in_order_of(target, computed);
}

Tensor to_storage_dtype(const Tensor& x, DType storage) {
  if (!x.defined() || storage != DType::bf16 || x.dtype() == DType::bf16) return x;
  const Tensor y = empty_in_order_of(x, DType::bf16);
  convert_into(y, x);
  return y;
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
