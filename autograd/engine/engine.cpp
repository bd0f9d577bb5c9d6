#include "autograd/engine/engine.hpp"

#include <queue>
#include <unordered_map>
#include <vector>

#include "autograd/engine/deferred_gradients.hpp"
#include "autograd/engine/node.hpp"
#include "autograd/kernels/copy.hpp"

namespace ringside::autograd {

namespace {

// A node that is not ready yet.
struct Pending {
  int awaited = 0;  // gradients of its output that have not arrived: one per edge to this node
  Tensor grad;      // the sum of those that have arrived; undefined if none has
};

struct Ready {
  std::shared_ptr<Node> node;
  Tensor grad;
  std::uint64_t arrival;

  // std::priority_queue pops the largest first: the node recorded last; among equals
  // (AccumulateGrads) the one that became ready first.
  bool operator<(const Ready& other) const {
    return node->sequence() != other.node->sequence() ? node->sequence() < other.node->sequence()
                                                      : arrival > other.arrival;
  }
};

class Engine {
 public:
  void run(std::shared_ptr<Node> root, Tensor seed) {
    count_dependencies(*root);
    ready_.push({std::move(root), std::move(seed), arrivals_++});
    while (!ready_.empty()) {
      // top() is const to protect the order of the queue. The order does not depend on the gradient
      // that is moved out here.
      auto& top = const_cast<Ready&>(ready_.top());
      const std::shared_ptr<Node> node = top.node;
      Tensor grad = std::move(top.grad);
      ready_.pop();
      run_node(*node, std::move(grad));
    }
  }

 private:
  // Visits each node once, with a list instead of recursion, and counts the edges that lead to it.
  void count_dependencies(Node& root) {
    std::vector<Node*> unseen{&root};
    pending_[&root];
    while (!unseen.empty()) {
      Node* const node = unseen.back();
      unseen.pop_back();
      require(!node->released(),
              "backward: an earlier backward has run {} and released what it saved; compute the "
              "loss again, or add the losses and call backward once",
              node->name());
      for (const std::shared_ptr<Node>& next : node->edges()) {
        if (!next) continue;
        const auto [entry, is_new] = pending_.try_emplace(next.get());
        if (is_new) unseen.push_back(next.get());
        ++entry->second.awaited;
      }
    }
  }

  void run_node(Node& node, Tensor grad) {
    const std::vector<GradHook> hooks = node.grad_hooks;  // a copy, because a hook may add another
    for (const GradHook& hook : hooks)
      if (grad.defined()) hook(grad);
    Gradients gradients;
    if (grad.defined()) gradients = node.backward(grad);
    Profile::note_backward(node.name());
    grad = {};
    const std::vector<std::shared_ptr<Node>> edges = node.edges();
    if (edges.empty()) return;  // an AccumulateGrad, which is not released: it serves the next pass
    node.release();
    require(gradients.empty() || gradients.size() == edges.size(),
            "backward of {}: expected {} gradients, one per input, got {}", node.name(),
            edges.size(), gradients.size());
    gradients.resize(edges.size());
    for (std::size_t input = 0; input < edges.size(); ++input)
      if (edges[input]) deliver(node, input, edges[input], std::move(gradients[input]));
  }

  // Adds the gradient of one input to the node that computed that input. The node is ready when no
  // other gradient is awaited.
  void deliver(const Node& from, std::size_t input, const std::shared_ptr<Node>& to, Tensor grad) {
    Pending& pending = pending_.at(to.get());
    if (grad.defined()) {
      require(grad.shape() == to->output_shape() && grad.dtype() == to->output_dtype(),
              "backward of {}: expected a gradient of {} {} for input {}, got {} {}", from.name(),
              name_of(to->output_dtype()), to->output_shape(), input, name_of(grad.dtype()),
              grad.shape());
      if (pending.grad.defined()) {
        pending.grad = sum_of(std::move(pending.grad), std::move(grad));
        Profile::note_backward("gradient sums");
      } else {
        pending.grad = std::move(grad);
      }
    }
    if (--pending.awaited > 0) return;
    if (!DeferredGradients::take(to, pending.grad))
      ready_.push({to, std::move(pending.grad), arrivals_++});
    pending_.erase(to.get());
  }

  // a + b, in the memory of one of them if no other tensor uses it. An op may have returned one
  // buffer for two inputs (add does) or a view of it (reshape does); such a buffer must not change.
  static Tensor sum_of(Tensor a, Tensor b) {
    if (is_exclusive(a) && a.is_contiguous()) {
      accumulate_into(a, b);
      return a;
    }
    if (is_exclusive(b) && b.is_contiguous()) {
      accumulate_into(b, a);
      return b;
    }
    Tensor sum = a.clone();
    accumulate_into(sum, b);
    return sum;
  }

  std::unordered_map<Node*, Pending> pending_;
  std::priority_queue<Ready> ready_;
  std::uint64_t arrivals_ = 0;
};

thread_local int running_passes = 0;

struct Pass {
  Pass() { ++running_passes; }
  ~Pass() { --running_passes; }
};

}  // namespace

bool in_backward() {
  return running_passes > 0;
}

void backward(const Tensor& loss, const Tensor& seed) {
  const std::shared_ptr<Node> root = gradient_edge(loss);
  require(root != nullptr,
          "backward: the loss of shape {} depends on no tensor that requires a gradient",
          loss.shape());
  require(seed.defined() || loss.elements() == 1,
          "backward: expected a loss of one element, got shape {}; give a seed of that shape, or "
          "sum() the loss",
          loss.shape());
  require(!seed.defined() || (seed.shape() == loss.shape() && seed.dtype() == loss.dtype()),
          "backward: expected a seed of {} {}, got {} {}", name_of(loss.dtype()), loss.shape(),
          seed.defined() ? name_of(seed.dtype()) : "", seed.defined() ? seed.shape() : Shape{});
  if (seed.defined() && seed.device() != loss.device())
    fail("backward: expected a seed on {} as the loss, got one on {}", name_of(loss.device()),
         name_of(seed.device()));
  backward(root,
           seed.defined() ? seed : Tensor::full(loss.shape(), 1, loss.dtype(), loss.device()));
}

void backward(const std::shared_ptr<Node>& result, const Tensor& gradient) {
  require(
      result != nullptr && gradient.defined() && gradient.shape() == result->output_shape() &&
          gradient.dtype() == result->output_dtype(),
      "backward: expected the node of a result, and a gradient of the result's shape and dtype");
  const NoGrad no_history;
  const Pass pass;
  Engine().run(result, gradient);
}

}  // namespace ringside::autograd
