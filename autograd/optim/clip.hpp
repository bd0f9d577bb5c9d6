// Clipping gradients by their global norm, in two halves. Between the halves, ranks that each hold
// a part of the gradients sum their squares.
#pragma once

#include <span>

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// The sum of the squares of all gradients that exist, in fp64 (on a GPU in fp32): tensor by tensor,
// so that ranks that hold whole tensors can add up their sums to the same bits.
double grad_norm_squared(std::span<const Tensor> parameters);

// The factor that reduces a norm to at most max_norm: min(1, max_norm / (norm + 1e-6)), as in
// torch. Throws Error if max_norm is not positive.
double clip_factor(double norm, double max_norm);

// Both halves for a single process: multiplies all gradients that exist, in place. Returns the norm
// before clipping. A trainer hands the factor to its optimizer instead, which takes no pass over
// memory (Optimizer::set_gradient_scale).
double clip_grad_norm(std::span<const Tensor> parameters, double max_norm);

}  // namespace ringside::autograd
