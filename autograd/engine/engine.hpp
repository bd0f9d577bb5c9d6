// The engine: runs the recorded graph backwards and tells, through hooks, when each gradient is
// ready.
//
// Read node.hpp first, then engine.cpp.
#pragma once

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// Adds d(loss)/d(leaf) to the grad of every leaf that requires one and that `loss` was made of.
// `seed` is the gradient of the loss itself: of its shape and dtype, or undefined for 1, which asks
// for a loss of one element.
//
// A node runs as soon as all gradients of its output have arrived, the latest-made of the ready
// ones first; an AccumulateGrad goes before all others. So gradients of the last layers come first,
// and each parameter's hooks run while the rest is still to be computed. The graph is released on
// the way: saved tensors go as soon as they have served. A second pass through it throws Error,
// before anything is changed. Nothing here is shared between threads. Hooks may throw: the pass
// ends there, and the graph is no longer of use.
void backward(const Tensor& loss, const Tensor& seed = {});

// Whether a backward() is under way on this thread: what runs forward then
// (autograd/engine/checkpointing.hpp) computes something again, and its own backward follows at
// once.
bool in_backward();

}  // namespace ringside::autograd
