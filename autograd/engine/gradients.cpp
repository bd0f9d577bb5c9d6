// The gradient side of Tensor: history, accumulated gradients and hooks.
#include <algorithm>

#include "autograd/engine/node.hpp"
#include "autograd/tensor/tensor_impl.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

namespace {

const std::shared_ptr<Node> no_node;

const char* maker(const Tensor& tensor) {
  return tensor.grad_fn() ? tensor.grad_fn()->name() : "no op";
}

// Throws unless `grad` may hold the gradient of `leaf`.
void require_gradient_of(const Tensor& leaf, const char* function, const Tensor& grad) {
  require(grad.shape() == leaf.shape() && grad.dtype() == leaf.dtype(),
          "{}: expected {} {} as the tensor itself, got {} {}", function, name_of(leaf.dtype()),
          leaf.shape(), name_of(grad.dtype()), grad.shape());
  require(grad.device() == leaf.device(),
          "{}: expected a gradient on {} as the tensor itself, got one on {}", function,
          name_of(leaf.device()), name_of(grad.device()));
  require(grad.is_contiguous(), "{}: expected a contiguous gradient, got strides {}", function,
          grad.strides());
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
          "set_requires_grad: expected a tensor of fp32, fp64 or bf16, got int32");
  impl_->requires_grad = value;
  return *this;
}

void Tensor::set_grad(Tensor grad) const {
  require(is_leaf(), "set_grad: expected a leaf, got the result of {}", maker(*this));
  if (grad.defined()) {
    require_gradient_of(*this, "set_grad", grad);
    if (grad.requires_grad()) grad = grad.detach();
  }
  impl_->grad = std::move(grad);
}

void Tensor::lend_grad_memory(const Tensor& memory) const {
  require(is_leaf(), "lend_grad_memory: expected a leaf, got the result of {}", maker(*this));
  if (memory.defined()) require_gradient_of(*this, "lend_grad_memory", memory);
  impl_->grad_memory = memory.defined() ? memory.detach() : Tensor();
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
          "register_hook: expected the result of an op, got a leaf; use "
          "register_post_accumulate_grad_hook for a leaf");
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

}  // namespace ringside::autograd
