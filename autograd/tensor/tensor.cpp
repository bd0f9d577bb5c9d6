#include "autograd/tensor/tensor.hpp"

#include <algorithm>

#include "autograd/engine/node.hpp"
#include "autograd/engine/tensor_impl.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/parallel.hpp"
#include "autograd/kernels/rows.hpp"
#include "autograd/tensor/bf16.hpp"
#include "autograd/tensor/device_memory.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

std::int64_t elements_of(const Shape& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  return elements;
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

namespace {

Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= shape[d];
  }
  return strides;
}

const std::shared_ptr<Node> no_node;

void require_type_of_device(DType dtype, Device device) {
  require(device == Device::cpu || dtype != DType::fp64,
          "a tensor of fp64 is for the CPU alone: on {} numbers are fp32 or bf16", name_of(device));
}

}  // namespace

// --- Making tensors
// -----------------------------------------------------------------------------------------------------------------

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
  require_type_of_device(dtype, storage->device());
  auto impl = std::make_shared<Impl>();
  impl->storage = std::move(storage);
  impl->offset = offset;
  impl->strides = contiguous_strides(shape);
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

Tensor make_view(const Tensor& base, std::int64_t offset, Shape shape, Shape strides) {
  auto impl = std::make_shared<Tensor::Impl>();
  impl->storage = base.impl().storage;
  impl->offset = offset;
  impl->elements = elements_of(shape);
  impl->contiguous = is_row_major(shape, strides);
  impl->shape = std::move(shape);
  impl->strides = std::move(strides);
  impl->dtype = base.impl().dtype;
  return Tensor(std::move(impl));
}

// --- Looking at them
// ----------------------------------------------------------------------------------------------------------------

const Tensor::Impl& Tensor::impl() const {
  require(impl_ != nullptr,
          "this tensor is undefined (a missing gradient or bias?): nothing can be asked of it");
  return *impl_;
}

const Shape& Tensor::shape() const {
  return impl().shape;
}
const Shape& Tensor::strides() const {
  return impl().strides;
}
std::int64_t Tensor::dim() const {
  return static_cast<std::int64_t>(impl().shape.size());
}
std::int64_t Tensor::elements() const {
  return impl().elements;
}
DType Tensor::dtype() const {
  return impl().dtype;
}
std::int64_t Tensor::offset() const {
  return impl().offset;
}
const std::shared_ptr<Storage>& Tensor::storage() const {
  return impl().storage;
}
Device Tensor::device() const {
  return impl().storage->device();
}
bool Tensor::is_contiguous() const {
  return impl().contiguous;
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
          "the numbers of this tensor of shape {} lie on {}, where the host cannot look: take them "
          "home with .to(Device::cpu)",
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
  switch (dtype()) {
    case DType::fp32:
      return *data<float>();
    case DType::fp64:
      return *data<double>();
    case DType::int32:
      return *data<std::int32_t>();
    case DType::bf16:
      return *data<Bf16>();
  }
  fail("item: unknown type");
}

namespace {

// Between the host and a device, or two devices: contiguous bytes travel, and what is not
// contiguous is made so where it lies.
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

Tensor Tensor::detach() const {
  return make_view(*this, offset(), shape(), strides());
}

// --- Autograd
// -----------------------------------------------------------------------------------------------------------------------

namespace {
const char* maker(const Tensor& tensor) {
  return tensor.grad_fn() ? tensor.grad_fn()->name() : "no op";
}
}  // namespace

bool Tensor::requires_grad() const {
  return impl().requires_grad;
}
bool Tensor::is_leaf() const {
  return impl().grad_fn == nullptr;
}
const std::shared_ptr<Node>& Tensor::grad_fn() const {
  return impl_ ? impl_->grad_fn : no_node;
}
const Tensor& Tensor::grad() const {
  return impl().grad;
}

Tensor& Tensor::set_requires_grad(bool value) {
  require(is_leaf(), "set_requires_grad: expected a leaf, got the result of {}; detach() it first",
          maker(*this));
  require(!value || dtype() != DType::int32,
          "set_requires_grad: expected a tensor of fp32 or fp64, got int32");
  impl_->requires_grad = value;
  return *this;
}

void Tensor::set_grad(Tensor grad) const {
  require(is_leaf(), "set_grad: expected a leaf, got the result of {}", maker(*this));
  if (grad.defined()) {
    require(grad.shape() == shape() && grad.dtype() == dtype(),
            "set_grad: expected {} {} as the tensor itself, got {} {}", name_of(dtype()), shape(),
            name_of(grad.dtype()), grad.shape());
    require(grad.device() == device(),
            "set_grad: expected a gradient on {} as the tensor itself, got one on {}",
            name_of(device()), name_of(grad.device()));
    require(grad.is_contiguous(), "set_grad: expected a contiguous gradient, got strides {}",
            grad.strides());
    if (grad.requires_grad()) grad = grad.detach();
  }
  impl_->grad = std::move(grad);
}

void Tensor::zero_grad(bool set_to_none) const {
  if (!impl().grad.defined()) return;
  if (set_to_none)
    impl_->grad = {};
  else
    impl_->grad.fill_(0);
}

int Tensor::register_post_accumulate_grad_hook(PostAccumulateGradHook hook) const {
  require(is_leaf() && requires_grad(),
          "register_post_accumulate_grad_hook: expected a leaf that requires a gradient");
  impl_->hooks.emplace_back(++impl_->last_hook, std::move(hook));
  return impl_->last_hook;
}

void Tensor::remove_hook(int id) const {
  std::erase_if(impl_->hooks, [&](const auto& entry) { return entry.first == id; });
}

void Tensor::register_hook(GradHook hook) const {
  require(!is_leaf(),
          "register_hook: expected the result of an op, got a leaf; it has "
          "register_post_accumulate_grad_hook");
  grad_fn()->grad_hooks.push_back(std::move(hook));
}

void Tensor::set_data(const Tensor& source) const {
  require(is_leaf(), "set_data: expected a leaf, got the result of {}", maker(*this));
  require(source.shape() == shape() && source.dtype() == dtype() && source.is_contiguous(),
          "set_data: expected contiguous {} {}, got {} {} with strides {}", name_of(dtype()),
          shape(), name_of(source.dtype()), source.shape(), source.strides());
  impl_->storage = source.storage();
  impl_->offset = source.offset();
  impl_->strides = source.strides();
  impl_->contiguous = true;
}

namespace {
thread_local bool grad_enabled_here = true;
}

bool grad_enabled() {
  return grad_enabled_here;
}
NoGrad::NoGrad() : before_(grad_enabled_here) {
  grad_enabled_here = false;
}
NoGrad::~NoGrad() {
  grad_enabled_here = before_;
}
EnableGrad::EnableGrad() : before_(grad_enabled_here) {
  grad_enabled_here = true;
}
EnableGrad::~EnableGrad() {
  grad_enabled_here = before_;
}

}  // namespace ringside::autograd
