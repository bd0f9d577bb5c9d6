#include "autograd/engine/accumulate_gradient.hpp"

#include "autograd/engine/node.hpp"
#include "autograd/kernels/copy.hpp"

namespace ringside::autograd {

// Whether a gradient can become the leaf's own without a copy: no other tensor uses its buffer, and
// it fills that buffer.
static bool may_be_kept(const Tensor& grad) {
  return is_exclusive(grad) && grad.is_contiguous() &&
         grad.storage()->bytes() ==
             static_cast<std::size_t>(grad.elements()) * size_of(grad.dtype());
}

void accumulate_gradient(const Tensor& leaf, const Tensor& grad) {
  if (leaf.grad().defined()) return accumulate_into(leaf.grad(), grad);
  const MemoryScope gradients(MemoryKind::gradients);
  if (!may_be_kept(grad)) return leaf.set_grad(grad.clone());
  grad.storage()->set_kind(MemoryKind::gradients);
  leaf.set_grad(grad);
}

}  // namespace ringside::autograd
