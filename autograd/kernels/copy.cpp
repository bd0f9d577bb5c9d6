#include "autograd/kernels/copy.hpp"

#include "autograd/kernels/device_kernels.hpp"
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

}  // namespace

void Tensor::copy_(const Tensor& source) const {
  require(source.shape() == shape() && source.dtype() == dtype(),
          "copy_: expected {} {}, got {} {}", name_of(dtype()), shape(), name_of(source.dtype()),
          source.shape());
  if (is_same(source) || elements() == 0) return;
  if (source.device() != device()) return copy_across(source, *this);
  kernels_of(*this).copy(source, *this);
}

void Tensor::fill_(double value) const {
  require(is_contiguous(), "fill_: expected a contiguous tensor, got shape {} with strides {}",
          shape(), strides());
  kernels_of(*this).fill(*this, value);
}

void convert_into(const Tensor& target, const Tensor& source) {
  if (target.dtype() == source.dtype()) return target.copy_(source);
  kernels_of(target).copy(source, target);
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
  kernels_of(target).add(target, target.dtype() == DType::fp32 ? to_compute_dtype(source) : source,
                         target);
}

}  // namespace ringside::autograd
