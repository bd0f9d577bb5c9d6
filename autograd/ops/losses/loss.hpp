// What cross_entropy and linear_cross_entropy share: the losses of tokens, and the mean over them.
#pragma once

#include "autograd/kernels/device_kernels.hpp"

namespace ringside::autograd {

// A new tensor for the loss of each token.
inline Tensor empty_losses(std::int64_t tokens, Device device) {
  return Tensor::empty({tokens}, device_kernels(device).sum_dtype(), device);
}

// The sum of the losses divided by `count`, as a scalar of `dtype`. On a GPU the host does not wait
// for it.
inline Tensor mean_loss(const Tensor& losses, std::int64_t count, DType dtype) {
  const Tensor mean = Tensor::empty({}, dtype, losses.device());
  kernels_of(losses).mean_loss(losses, count, mean);
  return mean;
}

}  // namespace ringside::autograd
