// backward: runs the recorded graph in reverse order. Hooks report when each gradient is ready.
//
// Read node.hpp first, then engine.cpp.
#pragma once

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// Adds d(loss)/d(leaf) to the gradient of each leaf that requires one and that `loss` depends on.
// `seed` is the gradient of the loss itself, of its shape and dtype; undefined means 1, and the
// loss must then have one element.
//
// A node is ready when all gradients of its output have arrived. Of the ready nodes an
// AccumulateGrad runs first, then the op that was recorded last. So the gradients of the last
// layers come first, and the hooks of their parameters run while earlier layers are still to be
// computed. Each node is released after it has run, which frees its saved tensors. A second pass
// through the same graph throws Error and changes nothing. Threads share nothing. If a hook throws,
// the pass ends, and the graph cannot be used any more.
void backward(const Tensor& loss, const Tensor& seed = {});

// The same from the node of a result (Tensor::grad_fn), whose numbers may be freed by then: a
// pipeline stage sends its result away and later receives the result's gradient.
void backward(const std::shared_ptr<Node>& result, const Tensor& gradient);

// Whether this thread is inside a backward(). A forward that runs then is a recomputation
// (checkpointing.hpp), and its own backward follows at once.
bool in_backward();

}  // namespace ringside::autograd
