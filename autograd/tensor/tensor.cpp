#include "autograd/tensor/tensor.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "autograd/tensor/layout.hpp"
#include "autograd/tensor/tensor_impl.hpp"

namespace ringside::autograd {

std::int64_t elements_of(const Shape& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  return elements;
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// ---- Making tensors ----

Tensor Tensor::view_of(std::shared_ptr<Storage> storage, std::int64_t offset, Shape shape,
                       DType dtype) {
  for (const std::int64_t size : shape)
    require(size >= 0, "a tensor's sizes cannot be negative, got {}", shape);
  const std::int64_t elements = elements_of(shape);
  require(storage != nullptr, "Tensor::view_of: expected a storage, got none");
  require(offset >= 0 &&
              static_cast<std::size_t>(offset + elements) * size_of(dtype) <= storage->bytes(),
          "Tensor::view_of: {} {} at offset {} does not fit into a storage of {} bytes",
          name_of(dtype), shape, offset, storage->bytes());
  require(storage->device() == Device::cpu || dtype != DType::fp64,
          "expected fp32, bf16 or int32 on {}, got fp64, which only the CPU has",
          name_of(storage->device()));
  auto impl = std::make_shared<Impl>();
  impl->storage = std::move(storage);
  impl->offset = offset;
  impl->strides = row_major_strides(shape);
  impl->elements = elements;
  impl->contiguous = true;
  impl->shape = std::move(shape);
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}

Tensor Tensor::empty(Shape shape, DType dtype, Device device) {
  for (const std::int64_t size : shape)
    require(size >= 0, "a tensor's sizes cannot be negative, got {}", shape);
  auto storage =
      Storage::allocate(static_cast<std::size_t>(elements_of(shape)) * size_of(dtype), device);
  return view_of(std::move(storage), 0, std::move(shape), dtype);
}

Tensor Tensor::zeros(Shape shape, DType dtype, Device device) {
  return full(std::move(shape), 0, dtype, device);
}

Tensor Tensor::full(Shape shape, double value, DType dtype, Device device) {
  Tensor result = empty(std::move(shape), dtype, device);
  result.fill_(value);
  return result;
}

Tensor Tensor::scalar(double value, DType dtype, Device device) {
  return full({}, value, dtype, device);
}

template <class T>
Tensor Tensor::from(std::span<const T> values, Shape shape, Device device) {
  Tensor result = empty(std::move(shape), dtype_of<T>());
  require(static_cast<std::int64_t>(values.size()) == result.elements(),
          "Tensor::from: shape {} has {} elements, got {} values", result.shape(),
          result.elements(), values.size());
  std::copy(values.begin(), values.end(), result.data<T>());
  return result.to(device);
}
template Tensor Tensor::from(std::span<const float>, Shape, Device);
template Tensor Tensor::from(std::span<const double>, Shape, Device);
template Tensor Tensor::from(std::span<const std::int32_t>, Shape, Device);

// ---- Reading tensors ----

const Tensor::Impl& Tensor::impl() const {
  require(impl_ != nullptr,
          "expected a defined tensor, got an undefined one (a missing gradient or bias?)");
  return *impl_;
}

const Layout& Tensor::layout() const {
  return impl();
}

std::int64_t Tensor::size(std::int64_t d) const {
  const std::int64_t dims = dim(), index = d < 0 ? d + dims : d;
  require(index >= 0 && index < dims, "size: dimension {} of a tensor of shape {}", d, shape());
  return shape()[static_cast<std::size_t>(index)];
}

std::byte* Tensor::address() const {
  require(storage()->data() != nullptr,
          "the memory of this tensor of shape {} is dropped (Storage::drop) and not restored yet",
          shape());
  return storage()->data() + static_cast<std::size_t>(offset()) * size_of(dtype());
}

template <class T>
T* Tensor::data() const {
  require(dtype() == dtype_of<T>(), "expected a tensor of {}, got {} {}", name_of(dtype_of<T>()),
          name_of(dtype()), shape());
  require(device() == Device::cpu,
          "this tensor of shape {} is on {}, where the host cannot read it: copy it with "
          ".to(Device::cpu)",
          shape(), name_of(device()));
  return reinterpret_cast<T*>(address());
}
template float* Tensor::data() const;
template double* Tensor::data() const;
template std::int32_t* Tensor::data() const;
template Bf16* Tensor::data() const;

template <class T>
std::span<T> Tensor::values() const {
  require(is_contiguous(), "values: expected a contiguous tensor, got shape {} with strides {}",
          shape(), strides());
  return {data<T>(), static_cast<std::size_t>(elements())};
}
template std::span<float> Tensor::values() const;
template std::span<double> Tensor::values() const;
template std::span<std::int32_t> Tensor::values() const;
template std::span<Bf16> Tensor::values() const;

double Tensor::item() const {
  require(elements() == 1, "item: expected a tensor of one element, got shape {}", shape());
  if (device() != Device::cpu) return detach().to(Device::cpu).item();
  double value = 0;
  dispatch_any(dtype(), "item", [&]<class T>(T) { value = *data<T>(); });
  return value;
}

Tensor Tensor::detach() const {
  return make_view(*this, offset(), shape(), strides());
}

}  // namespace ringside::autograd
