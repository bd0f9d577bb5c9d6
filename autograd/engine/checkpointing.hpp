// Activation checkpointing: memory for time.
//
//     forward     x ──[ block ]── y     nothing that the block's ops would save is kept, only x
//     backward    x ──[ block ]── y     computed again, this time with history, and passed backward at once
//
// One forward more for each block, about a third of a step's time; and instead of what every op of
// every block saves there are the blocks' inputs, and what the ops of ONE block save. Chen et al.,
// "Training deep nets with sublinear memory cost" (2016), section 4.
#pragma once

#include <functional>

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// function(x), and the same gradients to the bit, of x and of every leaf that `function` uses. It
// is called again during backward, and must give the same numbers then and use nothing that has a
// history of its own but x. Hooks of leaves fire during backward as ever, once if all uses of the
// leaf are in this one function. Where no history is recorded, or x requires no gradient, it is
// plainly function(x).
Tensor checkpoint(std::function<Tensor(const Tensor&)> function, const Tensor& x);

}  // namespace ringside::autograd
