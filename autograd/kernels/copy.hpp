// Copying, converting and adding tensors on any device, without history.
//
// copy.cpp also defines Tensor::copy_ and Tensor::fill_.
#pragma once

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// target = source: same shape and device, any strides. Between fp32 and bf16 each element is
// converted; otherwise the dtypes must be equal.
void convert_into(const Tensor& target, const Tensor& source);

// A bf16 tensor as a new tensor of fp32, in the same memory order. Any other tensor, or an
// undefined one, is returned as it is.
Tensor to_compute_dtype(const Tensor& x);

// An fp32 tensor rounded to bf16, if `storage` is bf16. If x has that dtype already, or is
// undefined, x itself.
Tensor to_storage_dtype(const Tensor& x, DType storage);

// Where a loop that computes in the compute dtype writes its result: `target` itself if it has a
// compute dtype; for a bf16 target a new fp32 tensor in the same memory order, contents undefined.
// When the loop is done, convert_into(target, buffer) rounds the result, or does nothing.
Tensor compute_buffer(const Tensor& target);

// target += source: same shape and device, any strides. An fp32 target takes bf16 numbers, too;
// otherwise the dtypes must be equal.
void accumulate_into(const Tensor& target, const Tensor& source);

}  // namespace ringside::autograd
