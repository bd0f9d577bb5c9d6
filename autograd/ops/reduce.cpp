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

// x, t (target), both [...] -> mean of (x - t)^2, a scalar.  dx = 2 (x - t) / n * dloss, dt = -dx
Tensor mse_loss(const Tensor& x_input, const Tensor& target) {
  require_alike("mse_loss", x_input, target);
  require_same_shape("mse_loss", x_input, target);
  require_compute_dtype("mse_loss", x_input);
  require(x_input.elements() > 0, "mse_loss: expected at least one element, got shape {}",
          x_input.shape());
  const Tensor x = x_input.contiguous(), t = target.contiguous();
  const Tensor loss = Tensor::empty({}, x.dtype(), x.device());
  kernels_of(x).mean_square(x, t, loss);
  return record("mse_loss", loss, {x, t},
                [x, t](const Node& node, const Tensor& dloss) -> Gradients {
                  const auto gradient = [&](std::size_t input, double factor) {
                    if (!node.needs(input)) return Tensor();
                    const Tensor dx = empty_like(x);
                    kernels_of(x).mean_square_backward(x, t, dloss, factor, dx);
                    return dx;
                  };
                  return {gradient(0, 2), gradient(1, -2)};
                });
}

}  // namespace ringside::autograd
