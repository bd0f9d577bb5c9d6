#include "autograd/engine/node.hpp"

#include <limits>
#include <utility>

#include "autograd/engine/accumulate_gradient.hpp"
#include "autograd/tensor/tensor_impl.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

namespace {

thread_local std::uint64_t last_sequence = 0;

// The nodes that wait for their destruction, while a release() further up the stack takes a graph
// apart; otherwise nullptr.
thread_local std::vector<std::shared_ptr<Node>>* waiting = nullptr;

}  // namespace

Node::Node(const char* name, Shape output_shape, DType output_dtype, std::uint64_t sequence)
    : name_(name),
      output_shape_(std::move(output_shape)),
      output_dtype_(output_dtype),
      sequence_(sequence) {}

Node::~Node() {
  release();
}

// A million nodes in a chain must not be destroyed by a million nested destructors. So a node moves
// its edges to a list before it is destroyed, and the outermost release() empties that list: each
// node is destroyed from there, when it has no edges left. The edges move before the saved tensors
// are freed, because saved tensors lead to the same nodes.
void Node::release() {
  released_ = true;
  std::vector<std::shared_ptr<Node>> mine;
  const bool outermost = waiting == nullptr;
  if (outermost) waiting = &mine;
  for (auto& edge : edges_)
    if (edge) waiting->push_back(std::move(edge));
  edges_.clear();
  grad_hooks.clear();
  release_saved();
  if (!outermost) return;
  while (!mine.empty()) {
    const std::shared_ptr<Node> next = std::move(mine.back());
    mine.pop_back();
  }
  waiting = nullptr;
}

OpNode::OpNode(const char* name, const Tensor& output, std::vector<std::shared_ptr<Node>> edges,
               Backward backward)
    : Node(name, output.shape(), output.dtype(), ++last_sequence), backward_(std::move(backward)) {
  edges_ = std::move(edges);
}

OpNode::~OpNode() {
  release();  // while backward_ still exists: ~Node() is too late
}

Gradients OpNode::backward(const Tensor& grad) {
  require(!released(),
          "{} runs a second time in one backward: a node must wait for all gradients of its output",
          name());
  return backward_(*this, grad);
}

// The largest sequence number: the node runs, and its hooks with it, as soon as it is ready.
AccumulateGrad::AccumulateGrad(Tensor leaf)
    : Node("AccumulateGrad", leaf.shape(), leaf.dtype(), std::numeric_limits<std::uint64_t>::max()),
      leaf_(std::move(leaf)) {}

Gradients AccumulateGrad::backward(const Tensor& grad) {
  // A loan is for one gradient. Lent memory is not free while it holds another part of it: that of
  // a use outside of a checkpointed block, when the block's part arrives.
  const Tensor memory = std::exchange(leaf_.impl_->grad_memory, {});
  const bool is_there = memory.defined() && memory.impl_ == grad.impl_,
             is_free = memory.defined() && memory.impl_.use_count() == 1;
  if (leaf_.grad().defined() || !(is_there || is_free)) {
    accumulate_gradient(leaf_, grad);
  } else {
    if (!is_there) memory.copy_(grad);
    leaf_.set_grad(memory);
  }
  const auto hooks = leaf_.impl_->hooks;  // a copy, because a hook may remove itself
  for (const auto& [id, hook] : hooks) hook(leaf_);
  return {};
}

bool AccumulateGrad::has_hooks() const {
  return !leaf_.impl_->hooks.empty();
}

Tensor AccumulateGrad::free_grad_memory() const {
  const Tensor& memory = leaf_.impl_->grad_memory;
  return !leaf_.grad().defined() && memory.impl_.use_count() == 1 ? memory : Tensor();
}

Tensor empty_gradient(const std::shared_ptr<Node>& to, const Shape& shape, DType dtype,
                      Device device) {
  if (const auto* const leaf = dynamic_cast<const AccumulateGrad*>(to.get()))
    if (Tensor memory = leaf->free_grad_memory(); memory.defined()) return memory;
  return Tensor::empty(shape, dtype, device);
}

std::shared_ptr<Node> gradient_edge(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.requires_grad()) return nullptr;
  Tensor::Impl& impl = *tensor.impl_;
  if (impl.grad_fn) return impl.grad_fn;
  std::shared_ptr<AccumulateGrad> node = impl.accumulate_grad.lock();
  if (!node) {
    node = std::make_shared<AccumulateGrad>(tensor);
    impl.accumulate_grad = node;
  }
  return node;
}

bool is_exclusive(const Tensor& tensor) {
  return tensor.impl_.use_count() == 1 && tensor.storage().use_count() == 1;
}

void attach(Tensor& output, std::shared_ptr<Node> node) {
  output.impl_->requires_grad = true;
  output.impl_->grad_fn = std::move(node);
}

bool is_recorded(std::span<const Tensor> inputs) {
  if (!grad_enabled()) return false;
  for (const Tensor& input : inputs)
    if (input.defined() && input.requires_grad()) return true;
  return false;
}

}  // namespace ringside::autograd
