// Activation checkpointing: less memory, more time.
//
//     forward     x ──[ block ]── y     without history: only x is saved
//     backward    x ──[ block ]── y     computed again with history, then backward at once
//
// It costs one more forward pass of each block, about a third of a step's time. Memory holds the
// inputs of all blocks and the saved tensors of ONE block, instead of those of all blocks. Chen et
// al., "Training deep nets with sublinear memory cost" (2016), section 4.
#pragma once

#include <functional>

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// Returns function(x), with bitwise the same gradients of x and of the leaves that `function` uses.
// `function` is called again during backward: it must compute the same numbers then, and must use
// no tensor with history except x. Hooks of leaves run during backward as usual; a hook runs once
// if all uses of its leaf are in this one function. If history is off or x requires no gradient,
// this is a plain call of function(x).
Tensor checkpoint(std::function<Tensor(const Tensor&)> function, const Tensor& x);

}  // namespace ringside::autograd
