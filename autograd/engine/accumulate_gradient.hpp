// How the gradient of a leaf grows.
#pragma once

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// leaf.grad() += grad, in place: leaf.grad() may be a view of a bucket. If the leaf has no gradient
// yet, it gets `grad` without a copy where nobody else uses that memory, otherwise a copy. `grad`
// has the leaf's shape and dtype.
void accumulate_gradient(const Tensor& leaf, const Tensor& grad);

}  // namespace ringside::autograd
