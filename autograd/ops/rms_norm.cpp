// rms_norm, alone and fused with the residual connection before it. The formulas of one row stand
// in kernels/cpu/rms_norm.cpp.
#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

void check(const char* op, const Tensor& x, const Tensor& weight) {
  require_alike(op, x, weight);
  require(x.dim() >= 1 && weight.shape() == Shape{x.size(-1)},
          "{}: expected x [..., n] and weight [n], got {} and {}", op, x.shape(), weight.shape());
}

// One number for each row, which backward needs.
Tensor empty_row_numbers(const Tensor& x) {
  return Tensor::empty({elements_of(leading(x.shape()))}, compute_dtype(x.dtype()), x.device());
}

Tensor record_rms_norm(Tensor y, const Tensor& x, const Tensor& w, const Tensor& r) {
  return record("rms_norm", std::move(y), {x, w},
                [x, w, r](const Node&, const Tensor& dy) -> Gradients {
                  const Tensor dx = empty_like(x), dw = empty_like(w);
                  kernels_of(x).rms_norm_backward(dy.contiguous(), x, w, r, dx, dw);
                  return {dx, dw};
                });
}

}  // namespace

// x [..., n], weight [n] -> y [..., n]
Tensor rms_norm(const Tensor& x_input, const Tensor& weight, double eps) {
  check("rms_norm", x_input, weight);
  const Tensor x = x_input.contiguous(), w = weight.contiguous();
  const Tensor y = empty_like(x), r = empty_row_numbers(x);
  kernels_of(x).rms_norm(x, w, eps, y, r);
  return record_rms_norm(y, x, w, r);
}

// x, residual [..., n], weight [n] -> sum = x + residual, normed = rms_norm(sum), both [..., n].
//
// One pass computes two results, and records two ops:
//
//     (x, residual) --> [add] --> sum --> [rms_norm] --> normed
SumAndNorm add_rms_norm(const Tensor& x_input, const Tensor& residual, const Tensor& weight,
                        double eps) {
  require_alike("add_rms_norm", x_input, residual);
  require_same_shape("add_rms_norm", x_input, residual);
  check("add_rms_norm", x_input, weight);
  const Tensor a = x_input.contiguous(), b = residual.contiguous(), w = weight.contiguous();
  Tensor sum = empty_like(a);
  const Tensor y = empty_like(a), r = empty_row_numbers(a);
  kernels_of(a).add_rms_norm(a, b, w, eps, sum, y, r);
  sum = record("add", sum, {a, b}, [](const Node&, const Tensor& dy) -> Gradients {
    return {dy, dy};
  });
  return {sum, record_rms_norm(y, sum, w, r)};
}

}  // namespace ringside::autograd
