#include "autograd/engine/engine.hpp"

#include <queue>
#include <unordered_map>
#include <vector>

#include "autograd/engine/node.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

// What the engine keeps about a node that it has not run yet.
struct Pending {
  int awaited = 0;  // gradients of its output that are still to come: one per edge that leads here
  Tensor grad;      // the sum of those that came; undefined if none did
};

struct Ready {
  std::shared_ptr<Node> node;
  Tensor grad;
  std::uint64_t arrival;

  // For std::priority_queue, which puts the largest first: the latest-made node; among equals
  // (AccumulateGrads) the first to arrive.
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
      // The queue gives its top out as const only to protect its order, and the order does not look
      // at what is moved from here.
      auto& top = const_cast<Ready&>(ready_.top());
      const std::shared_ptr<Node> node = top.node;
      Tensor grad = std::move(top.grad);
      ready_.pop();
      run_node(*node, std::move(grad));
    }
  }

 private:
  // Walks the graph once, with a list instead of recursion, and counts the edges that lead to each
  // node.
  void count_dependencies(Node& root) {
    std::vector<Node*> unseen{&root};
    pending_[&root];
    while (!unseen.empty()) {
      Node* const node = unseen.back();
      unseen.pop_back();
      require(!node->released(),
              "backward: {} was passed by an earlier backward, which released what it had saved; "
              "compute the loss anew, or add the "
              "losses "
              "and go back once",
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
    for (const GradHook& hook : node.grad_hooks)
      if (grad.defined()) hook(grad);
    Gradients gradients;
    if (grad.defined()) gradients = node.backward(grad);
    Profile::note_backward(node.name());
    grad = {};
    const std::vector<std::shared_ptr<Node>> edges = node.edges();
    if (edges.empty())
      return;  // an AccumulateGrad: nothing follows, and it lives on for the next pass
    node.release();
    require(gradients.empty() || gradients.size() == edges.size(),
            "backward of {}: expected {} gradients, one per input, got {}", node.name(),
            edges.size(), gradients.size());
    gradients.resize(edges.size());
    for (std::size_t input = 0; input < edges.size(); ++input)
      if (edges[input]) deliver(node, input, edges[input], std::move(gradients[input]));
  }

  // Hands the gradient of one input to the node that made it, which is ready when this was the last
  // one that it waited for.
  void deliver(const Node& from, std::size_t input, const std::shared_ptr<Node>& to, Tensor grad) {
    Pending& pending = pending_.at(to.get());
    if (grad.defined()) {
      require(grad.shape() == to->output_shape() && grad.dtype() == to->output_dtype(),
              "backward of {}: expected a gradient of {} {} for input {}, got {} {}", from.name(),
              name_of(to->output_dtype()), to->output_shape(), input, name_of(grad.dtype()),
              grad.shape());
      pending.grad = pending.grad.defined() ? sum_of(std::move(pending.grad), std::move(grad))
                                            : std::move(grad);
    }
    if (--pending.awaited > 0) return;
    ready_.push({to, std::move(pending.grad), arrivals_++});
    pending_.erase(to.get());
  }

  // a + b, in the memory of one of them if nobody else can see it. An op may have handed one buffer
  // to two inputs (add does), and views of it too (reshape does): such a buffer is only ever read.
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

thread_local int passes_under_way = 0;

struct Pass {
  Pass() { ++passes_under_way; }
  ~Pass() { --passes_under_way; }
};

}  // namespace

bool in_backward() {
  return passes_under_way > 0;
}

void backward(const Tensor& loss, const Tensor& seed) {
  const std::shared_ptr<Node> root = gradient_edge(loss);
  require(root != nullptr,
          "backward: the loss of shape {} depends on no tensor that requires a gradient",
          loss.shape());
  require(
      seed.defined() || loss.elements() == 1,
      "backward: a loss of shape {} has no one gradient; give a seed of that shape, or sum() it",
      loss.shape());
  require(!seed.defined() || (seed.shape() == loss.shape() && seed.dtype() == loss.dtype()),
          "backward: expected a seed of {} {}, got {} {}", name_of(loss.dtype()), loss.shape(),
          seed.defined() ? name_of(seed.dtype()) : "", seed.defined() ? seed.shape() : Shape{});
  if (seed.defined() && seed.device() != loss.device())
    fail("backward: expected a seed on {} as the loss, got one on {}", name_of(loss.device()),
         name_of(seed.device()));
  const NoGrad no_history;
  const Pass pass;
  Engine().run(root,
               seed.defined() ? seed : Tensor::full(loss.shape(), 1, loss.dtype(), loss.device()));
}

}  // namespace ringside::autograd
