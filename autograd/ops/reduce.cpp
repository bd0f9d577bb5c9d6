// sum, mean, mse_loss: a tensor to one number.
//
// On a GPU the result stays there, and so does its gradient: the host waits for no number.
#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

// x [...] -> y = factor * sum of x, a scalar.  dx = factor * dy everywhere
Tensor scaled_sum(const char* op, const Tensor& x_input, double factor) {
  require_compute_dtype(op, x_input);
  const Tensor x = x_input.contiguous(), y = Tensor::empty({}, x.dtype(), x.device());
  kernels_of(x).sum(x, factor, y);
  return record(op, y, {x},
                [shape = x.shape(), factor](const Node&, const Tensor& dy) -> Gradients {
                  const Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
                  kernels_of(dy).fill_with(dx, dy, factor);
                  return {dx};
                });
}

}  // namespace

Tensor sum(const Tensor& x) {
  return scaled_sum("sum", x, 1);
}

Tensor mean(const Tensor& x) {
  require(x.elements() > 0, "mean: expected at least one element, got shape {}", x.shape());
  return scaled_sum("mean", x, 1.0 / static_cast<double>(x.elements()));
}

// x, t (target), both [...] -> mean of (x - t)^2, a scalar
Tensor mse_loss(const Tensor& x, const Tensor& target) {
  require_same_shape("mse_loss", x, target);
  const Tensor difference = x + target * -1;
  return mean(difference * difference);
}

}  // namespace ringside::autograd
