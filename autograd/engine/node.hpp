// Node: one op of the recorded graph. AccumulateGrad: the node that receives the gradient of a
// parameter.
//
//     loss.grad_fn          arrows point from a result to its inputs, the way gradients flow
//         |
//     [cross_entropy] --> [linear] --> [rms_norm] --> ...
//                             |
//                             +--> [AccumulateGrad of weight]
//                                     weight.grad += gradient, then the hooks run
//
// A node has exactly one output. Its backward function captures what it needs of the forward pass
// (the saved tensors). They are freed when the engine has run the node, or when the last tensor
// whose history leads here is gone.
//
// Ownership has one direction: tensor -> grad_fn -> edges -> ... -> AccumulateGrad -> parameter. A
// parameter holds its AccumulateGrad only weakly, and a node that needs its own output saves it
// detached. So there are no cycles of references.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/kernels/profile.hpp"
#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// One per input of the op; undefined for an input that needs none.
using Gradients = std::vector<Tensor>;

class Node {
 public:
  Node(const char* name, Shape output_shape, DType output_dtype, std::uint64_t sequence);
  // Destroys a graph of any depth on a constant amount of stack.
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const char* name() const { return name_; }
  // Shape and dtype of the gradient that backward() receives.
  const Shape& output_shape() const { return output_shape_; }
  DType output_dtype() const { return output_dtype_; }
  // Grows in the order of the forward pass. The engine runs the ready node with the largest number,
  // so backward reverses that order.
  std::uint64_t sequence() const { return sequence_; }

  // The node that receives the gradient of each input; nullptr for an input that needs none.
  const std::vector<std::shared_ptr<Node>>& edges() const { return edges_; }
  bool needs(std::size_t input) const { return edges_[input] != nullptr; }

  // Gradients of the inputs from `grad`, the gradient of the output.
  virtual Gradients backward(const Tensor& grad) = 0;

  // Frees saved tensors and edges; a later backward pass through this node throws.
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

// The node of an op. Its backward is a lambda written below the op's forward; the lambda's captures
// are the saved tensors.
class OpNode final : public Node {
 public:
  // Gradients of the inputs from `grad`, the gradient of the output; node.needs(i) tells whether
  // input i needs one. The function may return `grad` itself or a view of it, but must not write to
  // it: other nodes may hold the same buffer.
  using Backward = std::function<Gradients(const Node& node, const Tensor& grad)>;

  OpNode(const char* name, const Tensor& output, std::vector<std::shared_ptr<Node>> edges,
         Backward backward);
  ~OpNode() override;
  Gradients backward(const Tensor& grad) override;

 private:
  void release_saved() override { backward_ = nullptr; }
  Backward backward_;
};

// Adds the incoming gradient to the parameter's gradient, or puts it into memory that the parameter
// was lent; then calls the parameter's hooks. The engine runs it once per backward pass, when the
// gradients of ALL uses of the parameter are summed. So a weight that is used twice (tied) is
// written once, and its hooks run once.
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(Tensor leaf);
  Gradients backward(const Tensor& grad) override;
  bool has_hooks() const;
  // The memory that the leaf was lent, for an op to compute its gradient there: undefined if the
  // leaf has a gradient, or if another op has taken the memory.
  Tensor free_grad_memory() const;

 private:
  Tensor leaf_;
};

// A tensor of undefined content for a gradient that `to` receives: where possible in the memory
// that its leaf was lent.
Tensor empty_gradient(const std::shared_ptr<Node>& to, const Shape& shape, DType dtype,
                      Device device);

// The node that receives the gradient of `tensor`: its grad_fn, or the AccumulateGrad of a leaf;
// nullptr if it requires no gradient.
std::shared_ptr<Node> gradient_edge(const Tensor& tensor);

// Whether no other handle or tensor uses this memory, so that it may be overwritten.
bool is_exclusive(const Tensor& tensor);

// Makes `output` the result of `node`.
void attach(Tensor& output, std::shared_ptr<Node> node);

// Whether an op on these inputs is recorded: history is on, and one of them requires a gradient.
bool is_recorded(std::span<const Tensor> inputs);
inline bool is_recorded(std::initializer_list<Tensor> inputs) {
  return is_recorded(std::span(inputs.begin(), inputs.size()));
}

// The last line of an op. Makes `output` the result of an op on `inputs`, if the op is recorded;
// otherwise `backward` is dropped.
//
//     return record("silu", y, {x}, [x](const Node&, const Tensor& dy) -> Gradients { ... });
template <class Backward>
Tensor record(const char* name, Tensor output, std::span<const Tensor> inputs,
              Backward&& backward) {
  Profile::note_forward(name);
  if (!is_recorded(inputs)) return output;
  std::vector<std::shared_ptr<Node>> edges;
  for (const Tensor& input : inputs) edges.push_back(gradient_edge(input));
  attach(output, std::make_shared<OpNode>(name, output, std::move(edges),
                                          std::forward<Backward>(backward)));
  return output;
}
template <class Backward>
Tensor record(const char* name, Tensor output, std::initializer_list<Tensor> inputs,
              Backward&& backward) {
  return record(name, std::move(output), std::span(inputs.begin(), inputs.size()),
                std::forward<Backward>(backward));
}

}  // namespace ringside::autograd
