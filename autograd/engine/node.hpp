// Node: one op of the recorded graph. AccumulateGrad: the node in which a parameter's gradient
// arrives.
//
//     loss.grad_fn                 a graph of nodes: arrows point from a result to what it was made of, the way gradients flow
//         |
//     [cross_entropy] --> [linear] --> [rms_norm] --> ...
//                             |
//                             +--> [AccumulateGrad of weight] : weight.grad += gradient, then the hooks
//
// A node has exactly one output. What its backward needs of the forward pass is captured by its
// function and goes away with it, as soon as the engine has passed (or the last tensor that leads
// here is gone).
//
// Ownership points one way: tensor -> grad_fn -> edges -> ... -> AccumulateGrad -> parameter. A
// parameter knows its AccumulateGrad only weakly, and a node that needs its own output saves it
// detached; hence no cycles.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/engine/profile.hpp"
#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

using Gradients =
    std::vector<Tensor>;  // one per input of the op; undefined where none is asked for

class Node {
 public:
  Node(const char* name, Shape output_shape, DType output_dtype, std::uint64_t sequence);
  virtual ~Node();  // of any depth of graph, on a constant amount of stack
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const char* name() const { return name_; }
  const Shape& output_shape() const {
    return output_shape_;
  }  // the shape of the gradient that comes in
  DType output_dtype() const { return output_dtype_; }
  // Larger is later. The engine prefers the latest ready node, which is the order of the forward
  // pass, reversed.
  std::uint64_t sequence() const { return sequence_; }

  // Where the gradient of each input goes; nullptr where none is asked for.
  const std::vector<std::shared_ptr<Node>>& edges() const { return edges_; }
  bool needs(std::size_t input) const { return edges_[input] != nullptr; }

  // From the gradient of the output to the gradients of the inputs.
  virtual Gradients backward(const Tensor& grad) = 0;

  // Lets go of saved tensors and edges; a later backward through here throws.
  void release();
  bool released() const { return released_; }

  std::vector<GradHook> grad_hooks;  // called before backward()

 protected:
  virtual void release_saved() {}
  std::vector<std::shared_ptr<Node>> edges_;

 private:
  const char* name_;
  Shape output_shape_;
  DType output_dtype_;
  std::uint64_t sequence_;
  bool released_ = false;
};

// The node of an op: its backward is a function beside the op's forward, and what that function
// captures is what is saved.
class OpNode final : public Node {
 public:
  // Gradients of the inputs from `grad`, that of the output; node.needs(i) tells which are asked
  // for. It may hand on `grad` itself or a view of it, but never writes into it: others may hold
  // the same buffer.
  using Backward = std::function<Gradients(const Node& node, const Tensor& grad)>;

  OpNode(const char* name, const Tensor& output, std::vector<std::shared_ptr<Node>> edges,
         Backward backward);
  ~OpNode() override;
  Gradients backward(const Tensor& grad) override;

 private:
  void release_saved() override { backward_ = nullptr; }
  Backward backward_;
};

// Adds what arrives to the parameter's gradient, then calls the parameter's hooks. The engine runs
// it once per backward pass, when the gradients of ALL uses of the parameter are summed: a weight
// used twice (tied) is written, and announced, once.
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(Tensor leaf);
  Gradients backward(const Tensor& grad) override;

 private:
  Tensor leaf_;
};

// The node that receives the gradient of `tensor`: its grad_fn, or its AccumulateGrad; nullptr if
// it requires none.
std::shared_ptr<Node> gradient_edge(const Tensor& tensor);

// Whether this handle is the only way to reach the numbers behind it, so that they may be
// overwritten.
bool is_exclusive(const Tensor& tensor);

void attach(Tensor& output, std::shared_ptr<Node> node);  // output becomes the result of node
bool any_requires_grad(std::initializer_list<Tensor> inputs);

// How an op ends: `return record("silu", y, {x}, [x](const Node&, const Tensor& dy) -> Gradients {
// ... });` Makes y the result of an op on `inputs`, unless history is off or no input requires a
// gradient; then `backward` is dropped.
template <class Backward>
Tensor record(const char* name, Tensor output, std::initializer_list<Tensor> inputs,
              Backward&& backward) {
  Profile::note_forward(name);
  if (!grad_enabled() || !any_requires_grad(inputs)) return output;
  std::vector<std::shared_ptr<Node>> edges;
  for (const Tensor& input : inputs)
    edges.push_back(input.defined() ? gradient_edge(input) : nullptr);
  attach(output, std::make_shared<OpNode>(name, output, std::move(edges),
                                          std::forward<Backward>(backward)));
  return output;
}

}  // namespace ringside::autograd
