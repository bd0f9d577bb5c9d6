// matmul and linear: most of the time of a training step, and nearly all of it in gemm.
//
//     Y = A B                            [m, n] = [m, k] [k, n]
//     dA = dY B^T,  dB = A^T dY          [m, k] = [m, n] [n, k],  [k, n] = [k, m] [m, n]
#include <algorithm>

#include "autograd/engine/deferred_gradients.hpp"
#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

constexpr auto transposed = Transpose::yes;

// `count` products, one after the other, of as many matrices in each tensor.
void multiply_each(std::int64_t count, const MatrixProduct& product, const Tensor& a,
                   const Tensor& b, const Tensor& c) {
  const auto matrix = [count](const Tensor& x, std::int64_t i) {
    const std::int64_t n = x.elements() / count;
    return make_view(x, x.offset() + i * n, {n}, {1});
  };
  for (std::int64_t i = 0; i < count; ++i)
    multiply(product, matrix(a, i), matrix(b, i), matrix(c, i));
}

}  // namespace

// a [..., m, k], b [..., k, n] or [k, n] -> y [..., m, n]
Tensor matmul(const Tensor& a_input, const Tensor& b_input) {
  require_alike("matmul", a_input, b_input);
  const Tensor a = a_input.contiguous(), b = b_input.contiguous();
  // A single b multiplies all matrices of a as one tall matrix.
  const bool single = b.dim() == 2;
  const bool fits = a.dim() >= 2 && b.dim() >= 2 && a.size(-1) == b.size(-2) &&
                    (single || std::equal(a.shape().begin(), a.shape().end() - 2, b.shape().begin(),
                                          b.shape().end() - 2));
  require(fits,
          "matmul: expected [..., m, k] and [..., k, n] with equal leading sizes, or [k, n]; got "
          "{} and {}",
          a.shape(), b.shape());

  const std::int64_t k = a.size(-1), n = b.size(-1);
  const std::int64_t rows = elements_of(leading(a.shape())), m = single ? rows : a.size(-2);
  const std::int64_t count = single ? 1 : elements_of(leading(leading(a.shape())));
  Shape y_shape = a.shape();
  y_shape.back() = n;
  const Tensor y = Tensor::empty(std::move(y_shape), a.dtype(), a.device());
  multiply_each(count, {.m = m, .n = n, .k = k}, a, b, y);

  return record("matmul", y, {a, b},
                [a, b, count, m, n, k](const Node& node, const Tensor& grad) -> Gradients {
                  const Tensor dy = grad.contiguous();
                  const Tensor da = node.needs(0) ? empty_like(a) : Tensor(),
                               db = node.needs(1) ? empty_like(b) : Tensor();
                  if (da.defined())
                    multiply_each(count, {.b = transposed, .m = m, .n = k, .k = n}, dy, b, da);
                  if (db.defined())
                    multiply_each(count, {.a = transposed, .m = k, .n = n, .k = m}, a, dy, db);
                  return {da, db};
                });
}

namespace {

// dy [rows, n] -> its sum over rows [n]
Tensor sum_of_rows(const Tensor& dy, std::int64_t rows, std::int64_t n) {
  const Tensor sum = Tensor::empty({n}, dy.dtype(), dy.device());
  kernels_of(dy).sum_to(make_view(dy, dy.offset(), {rows, n}, {n, 1}), sum);
  return sum;
}

// x [..., in], W [out, in], grad [..., out] -> dx [..., in], dW [out, in], db [out], each of them
// only if the node needs it. Does not write to grad.
//
//     dx = dy W        dW = dy^T x        db = sum of dy over rows
//
// A pipeline may want dW later than dx (DeferredGradients), so compute_or_defer() decides when
// weight_gradient() runs.
Gradients linear_backward(const Node& node, const Tensor& x, const Tensor& w, const Tensor& grad) {
  const Tensor dy = grad.contiguous();
  const std::int64_t rows = elements_of(leading(x.shape())), in = w.size(1), out = w.size(0);
  const auto weight_gradient = [=, to = node.edges()[1]] {
    const Tensor dw = empty_gradient(to, w.shape(), w.dtype(), w.device());
    multiply({.a = transposed, .m = out, .n = in, .k = rows}, dy, x, dw);
    return dw;
  };
  Tensor dx, dw, db;
  if (node.needs(0)) multiply({.m = rows, .n = in, .k = out}, dy, w, dx = empty_like(x));
  if (node.needs(1)) dw = DeferredGradients::compute_or_defer(node, 1, weight_gradient);
  if (node.needs(2)) db = sum_of_rows(dy, rows, out);
  return {dx, dw, db};
}

}  // namespace

// x [..., in], W [out, in], b [out] -> y = x W^T + b [..., out]
Tensor linear(const Tensor& x_input, const Tensor& weight, const Tensor& bias) {
  require_alike("linear", x_input, weight);
  require(weight.dim() == 2 && x_input.dim() >= 1 && x_input.size(-1) == weight.size(1),
          "linear: expected x [..., in] and weight [out, in], got {} and {}", x_input.shape(),
          weight.shape());
  const std::int64_t out = weight.size(0), in = weight.size(1);
  if (bias.defined()) {
    require_alike("linear", x_input, bias);
    require(bias.shape() == Shape{out}, "linear: expected bias [{}], got {}", out, bias.shape());
  }
  const Tensor x = x_input.contiguous(), w = weight.contiguous();
  const std::int64_t rows = elements_of(leading(x.shape()));
  Shape y_shape = x.shape();
  y_shape.back() = out;
  const Tensor y = Tensor::empty(std::move(y_shape), x.dtype(), x.device());
  if (bias.defined())  // every row of y starts as the bias, and the product is added
    y.copy_(make_view(bias, bias.offset(), y.shape(),
                      stretched_strides(bias.shape(), bias.strides(), y.shape())));
  const float beta = bias.defined() ? 1 : 0;
  multiply({.b = transposed, .m = rows, .n = out, .k = in, .beta = beta}, x, w, y);

  return record("linear", y, {x, w, bias}, [x, w](const Node& node, const Tensor& dy) -> Gradients {
    return linear_backward(node, x, w, dy);
  });
}

}  // namespace ringside::autograd
