#include "autograd/engine/node.hpp"

#include <limits>

#include "autograd/engine/tensor_impl.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

thread_local std::uint64_t last_sequence = 0;

// Nodes that are about to go, while some release() up the stack is taking a graph apart; nullptr
// otherwise.
thread_local std::vector<std::shared_ptr<Node>>* condemned = nullptr;

}  // namespace

Node::Node(const char* name, Shape output_shape, DType output_dtype, std::uint64_t sequence)
    : name_(name),
      output_shape_(std::move(output_shape)),
      output_dtype_(output_dtype),
      sequence_(sequence) {}

Node::~Node() {
  release();
}

// A chain of a million nodes must not be destroyed by a million nested destructors. So the edges of
// a dying node are put on a list, and the outermost release() empties it: each node dies from
// there, with nothing left to destroy but itself. The edges are on the list before the saved
// tensors go, because saved tensors lead to the same nodes.
void Node::release() {
  released_ = true;
  std::vector<std::shared_ptr<Node>> mine;
  const bool outermost = condemned == nullptr;
  if (outermost) condemned = &mine;
  for (auto& edge : edges_)
    if (edge) condemned->push_back(std::move(edge));
  edges_.clear();
  grad_hooks.clear();
  release_saved();
  if (!outermost) return;
  while (!mine.empty()) {
    const std::shared_ptr<Node> next = std::move(mine.back());
    mine.pop_back();
  }
  condemned = nullptr;
}

OpNode::OpNode(const char* name, const Tensor& output, std::vector<std::shared_ptr<Node>> edges,
               Backward backward)
    : Node(name, output.shape(), output.dtype(), ++last_sequence), backward_(std::move(backward)) {
  edges_ = std::move(edges);
}

OpNode::~OpNode() {
  release();
}  // here, while backward_ still exists

Gradients OpNode::backward(const Tensor& grad) {
  return backward_(*this, grad);
}

// Its sequence is the largest there is, so that it runs, and its hooks fire, as soon as it is
// ready.
AccumulateGrad::AccumulateGrad(Tensor leaf)
    : Node("AccumulateGrad", leaf.shape(), leaf.dtype(), std::numeric_limits<std::uint64_t>::max()),
      leaf_(std::move(leaf)) {}

namespace {
// Whether a gradient can become the parameter's own without a copy: nobody else holds it, and it is
// all of its buffer.
bool may_be_kept(const Tensor& grad) {
  return is_exclusive(grad) && grad.is_contiguous() &&
         grad.storage()->bytes() ==
             static_cast<std::size_t>(grad.elements()) * size_of(grad.dtype());
}

Tensor as_own_gradient(const Tensor& grad) {
  const MemoryScope gradients(MemoryKind::gradients);
  if (!may_be_kept(grad)) return grad.clone();
  grad.storage()->set_kind(MemoryKind::gradients);
  return grad;
}
}  // namespace

Gradients AccumulateGrad::backward(const Tensor& grad) {
  Tensor::Impl& leaf = *leaf_.impl_;
  if (leaf.grad.defined())
    accumulate_into(leaf.grad, grad);  // in place: it may be a view into a bucket
  else
    leaf.grad = as_own_gradient(grad);
  const auto hooks = leaf.hooks;  // a copy: a hook may remove itself
  for (const auto& [id, hook] : hooks) hook(leaf_);
  return {};
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

bool any_requires_grad(std::initializer_list<Tensor> inputs) {
  for (const Tensor& input : inputs)
    if (input.defined() && input.requires_grad()) return true;
  return false;
}

}  // namespace ringside::autograd
