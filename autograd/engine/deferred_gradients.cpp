#include "autograd/engine/deferred_gradients.hpp"

#include <utility>

#include "autograd/kernels/copy.hpp"

namespace ringside::autograd {

constinit thread_local DeferredGradients* DeferredGradients::here_ = nullptr;

Tensor DeferredGradients::compute_or_defer(const Node& node, std::size_t input, Compute compute) {
  const std::shared_ptr<Node>& to = node.edges()[input];
  if (!here_ || !dynamic_cast<AccumulateGrad*>(to.get())) return compute();
  Leaf* leaf = here_->find(*to);
  if (!leaf) leaf = &here_->leaves_.emplace_back(Leaf{to, node.name(), {}});
  leaf->parts.push_back(std::move(compute));
  return {};
}

bool DeferredGradients::take(const std::shared_ptr<Node>& node, const Tensor& grad) {
  const auto* const accumulate = here_ ? dynamic_cast<AccumulateGrad*>(node.get()) : nullptr;
  if (!accumulate) return false;
  Leaf* leaf = here_->find(*node);
  if (!leaf && (!grad.defined() || !accumulate->has_hooks())) return false;
  if (!leaf) leaf = &here_->leaves_.emplace_back(Leaf{node, node->name(), {}});
  if (grad.defined()) leaf->parts.push_back([grad] { return grad; });
  return true;
}

DeferredGradients::Leaf* DeferredGradients::find(const Node& node) {
  for (Leaf& leaf : leaves_)
    if (leaf.node.get() == &node) return &leaf;
  return nullptr;
}

void DeferredGradients::run() {
  const NoGrad no_history;
  for (Leaf& leaf : std::exchange(leaves_, {})) {
    Tensor sum;
    for (Compute& part : leaf.parts) {
      const Tensor gradient = std::exchange(part, nullptr)();
      if (!sum.defined()) {
        sum = gradient;
        continue;
      }
      if (!is_exclusive(sum)) sum = sum.clone();
      accumulate_into(sum, gradient);
    }
    (void)leaf.node->backward(sum);
    Profile::note_backward(leaf.op);
  }
}

}  // namespace ringside::autograd
