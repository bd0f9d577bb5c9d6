// DeferredGradients: the second half of a backward that is split in two.
//
//     whole backward      dx and dW of layer 3 | dx and dW of layer 2 | dx and dW of layer 1
//
//     split: I            dx of layer 3 | dx of layer 2 | dx of layer 1     then dx may be sent
//            W            dW of layer 3 | dW of layer 2 | dW of layer 1     whenever there is time
//
// Nobody waits for dW but the optimizer. A pipeline stage computes it while it would otherwise
// wait: Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024), section 2.
//
//     DeferredGradients later;
//     {
//       const DeferredGradients::Scope scope(later);
//       backward(output, gradient);                  // I
//     }
//     later.run();                                   // W
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "autograd/engine/node.hpp"
#include "base/scoped_value.hpp"

namespace ringside::autograd {

// What the backward passes of one scope have left to do. Whoever destroys it before run() drops the
// work: its tensors are freed and the gradients never change.
class DeferredGradients {
 public:
  using Compute = std::function<Tensor()>;

  // While alive, backward on this thread leaves work to `later`:
  //
  //     the weight of linear, if it is a leaf     computed, added to its gradient, hooks: in run()
  //     other leaves with hooks (norms, ...)      computed in backward; added, hooks: in run()
  //     leaves without hooks (inputs)             as always
  //
  // So the hooks of a pass all run in run(), in the order of a whole backward. Scopes nest; the
  // innermost counts. Recomputed blocks (checkpointing.hpp) defer too: what they saved for dW lives
  // until run().
  class Scope {
   public:
    explicit Scope(DeferredGradients& later) : here_(DeferredGradients::here_, &later) {}

   private:
    ScopedValue<DeferredGradients*> here_;
  };

  DeferredGradients() = default;
  DeferredGradients(DeferredGradients&&) = default;
  DeferredGradients& operator=(DeferredGradients&&) = default;

  // Does what was left, leaf by leaf, in the order of backward. The parts of one gradient are
  // summed and added once, then the hooks run. Each part is freed when it is computed. Gives the
  // bits of a whole backward (with three or more uses of a weight in one pass, the order of their
  // sum may differ). If a hook throws, the rest is dropped.
  void run();

  bool empty() const { return leaves_.empty(); }

  // ---- For ops and the engine ----

  // Calls `compute` and returns its result, the gradient of input `input` of `node`. Within a scope
  // keeps `compute` for run() and returns an undefined tensor.
  static Tensor compute_or_defer(const Node& node, std::size_t input, Compute compute);

  // Whether the complete gradient `grad` of a leaf was taken for run().
  static bool take(const std::shared_ptr<Node>& leaf, const Tensor& grad);

 private:
  struct Leaf {
    std::shared_ptr<Node> node;  // its AccumulateGrad
    const char* op;              // for the profile
    std::vector<Compute> parts;
  };
  Leaf* find(const Node& node);

  static constinit thread_local DeferredGradients* here_;
  std::vector<Leaf> leaves_;  // in the order in which backward reached them
};

}  // namespace ringside::autograd
