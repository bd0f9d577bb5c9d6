// matmul and linear: where nearly all of the time goes, and nearly all of that into gemm.
//
//     Y = A B                            [m, n] = [m, k] [k, n]
//     dA = dY B^T,  dB = A^T dY          each product puts the dimensions together that are left
#include <algorithm>

#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/gemm.hpp"
#include "autograd/kernels/parallel.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/bf16.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

constexpr auto plain = Transpose::no, transposed = Transpose::yes;

// `count` products C_i = op(A_i) op(B_i) of contiguous matrices that follow each other; m, k, n are
// the sizes of the product.
void batched_gemm(std::int64_t count, Transpose ta, Transpose tb, std::int64_t m, std::int64_t n,
                  std::int64_t k, const Tensor& a, const Tensor& b, const Tensor& c) {
  if (c.device() != Device::cpu)
    return device_kernels(c.device())
        .gemm({.a = ta, .b = tb, .m = m, .n = n, .k = k, .count = count}, a, b, c);
  dispatch(c.dtype(), "matmul", [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < count; ++i)
      gemm(ta, tb, m, n, k, T(1), a.data<T>() + i * m * k, ta == plain ? k : m,
           b.data<T>() + i * k * n, tb == plain ? n : k, T(0), c.data<T>() + i * m * n, n);
  });
}

}  // namespace

// a [..., m, k], b [..., k, n] or [k, n] -> y [..., m, n]
Tensor matmul(const Tensor& a_input, const Tensor& b_input) {
  require_alike("matmul", a_input, b_input);
  const Tensor a = a_input.contiguous(), b = b_input.contiguous();
  const auto mismatch = [&] {
    fail(
        "matmul: expected [..., m, k] and [..., k, n] with equal leading sizes, or [k, n]; got {} "
        "and {}",
        a.shape(), b.shape());
  };
  if (a.dim() < 2 || b.dim() < 2 || a.size(-1) != b.size(-2)) mismatch();
  const bool shared = b.dim() == 2;  // one b for all of a's matrices: they are one tall matrix
  if (!shared &&
      !std::equal(a.shape().begin(), a.shape().end() - 2, b.shape().begin(), b.shape().end() - 2))
    mismatch();

  const std::int64_t k = a.size(-1), n = b.size(-1);
  Shape y_shape = a.shape();
  y_shape.back() = n;
  const std::int64_t batch =
      shared ? 1 : elements_of(Shape(a.shape().begin(), a.shape().end() - 2));
  const std::int64_t m =
      shared ? elements_of(Shape(a.shape().begin(), a.shape().end() - 1)) : a.size(-2);
  Tensor y = Tensor::empty(std::move(y_shape), a.dtype(), a.device());
  batched_gemm(batch, plain, plain, m, n, k, a, b, y);

  return record(
      "matmul", y, {a, b},
      [a, b, batch, m, n, k](const Node& node, const Tensor& grad) -> Gradients {
        const Tensor dy = grad.contiguous();
        Tensor da, db;
        if (node.needs(0)) {
          da = Tensor::empty(a.shape(), a.dtype(), a.device());
          batched_gemm(batch, plain, transposed, m, k, n, dy, b, da);  // [m, k] = [m, n] [k, n]^T
        }
        if (node.needs(1)) {
          db = Tensor::empty(b.shape(), b.dtype(), b.device());
          batched_gemm(batch, transposed, plain, k, n, m, a, dy, db);  // [k, n] = [m, k]^T [m, n]
        }
        return {da, db};
      });
}

namespace {

// Every row of y := bias.
void fill_rows(const Tensor& y, const Tensor& bias) {
  dispatch(y.dtype(), "linear", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t n = bias.elements();
    parallel_for(y.elements() / n, 1 + (1 << 15) / n, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        std::copy_n(bias.data<T>(), n, y.data<T>() + row * n);
    });
  });
}

// dy [rows, n] -> its sum over rows [n]. Split by columns, so that the order of the sum is the same
// with any number of threads.
Tensor sum_of_rows(const Tensor& dy, std::int64_t n) {
  Tensor sum = Tensor::zeros({n}, dy.dtype());
  const std::int64_t rows = n == 0 ? 0 : dy.elements() / n;
  dispatch(dy.dtype(), "linear", [&](auto zero) {
    using T = decltype(zero);
    T* const total = sum.data<T>();
    parallel_for(n, 1 + (1 << 16) / std::max<std::int64_t>(rows, 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = 0; row < rows; ++row) {
                     const T* const from = dy.data<T>() + row * n;
#pragma omp simd
                     for (std::int64_t i = begin; i < end; ++i) total[i] += from[i];
                   }
                 });
  });
  return sum;
}

// The same on a device, whose products take bf16 as it is and add up in fp32: nothing is widened.
void linear_on_device(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& y,
                      std::int64_t rows) {
  const DeviceKernels& kernels = device_kernels(x.device());
  kernels.gemm({.b = transposed, .m = rows, .n = w.size(0), .k = w.size(1)}, x, w, y);
  if (b.defined()) kernels.add(y, b, y);
}

Gradients linear_backward_on_device(const Node& node, const Tensor& x, const Tensor& w,
                                    const Tensor& dy, std::int64_t rows) {
  const DeviceKernels& kernels = device_kernels(x.device());
  const std::int64_t out = w.size(0), in = w.size(1);
  const auto like = [](const Tensor& t) { return Tensor::empty(t.shape(), t.dtype(), t.device()); };
  const Tensor dx = node.needs(0) ? like(x) : Tensor(), dw = node.needs(1) ? like(w) : Tensor();
  if (dx.defined()) kernels.gemm({.m = rows, .n = in, .k = out}, dy, w, dx);
  if (dw.defined()) kernels.gemm({.a = transposed, .m = out, .n = in, .k = rows}, dy, x, dw);
  if (!node.needs(2)) return {dx, dw, Tensor()};
  const Tensor db = Tensor::empty({out}, dy.dtype(), dy.device());
  kernels.sum_to(make_view(dy, dy.offset(), {rows, out}, {out, 1}), db);
  return {dx, dw, db};
}

}  // namespace

// x [..., in], W [out, in], b [out] -> y = x W^T + b [..., out]
//
//     dx = dy W   [..., in]        dW = dy^T x   [out, in]        db = sum of dy over rows   [out]
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
  const Tensor x = x_input.contiguous(), w = weight.contiguous(),
               b = bias.defined() ? bias.contiguous() : bias;
  const std::int64_t rows = elements_of(Shape(x.shape().begin(), x.shape().end() - 1));
  Shape y_shape = x.shape();
  y_shape.back() = out;
  const DType kept = x.dtype();
  const bool on_device = x.device() != Device::cpu;
  Tensor y = Tensor::empty(std::move(y_shape), on_device ? kept : wide_type(kept), x.device());
  if (on_device) {
    linear_on_device(x, w, b, y, rows);
    return record("linear", y, {x, w, b}, [x, w, rows](const Node& node, const Tensor& dy) {
      return linear_backward_on_device(node, x, w, dy.contiguous(), rows);
    });
  }
  if (b.defined() && y.elements() > 0) fill_rows(y, wide(b));
  dispatch(y.dtype(), "linear", [&, x = wide(x), w = wide(w)](auto zero) {
    using T = decltype(zero);
    gemm(plain, transposed, rows, out, in, T(1), x.data<T>(), in, w.data<T>(), in,
         T(b.defined() ? 1 : 0), y.data<T>(), out);
  });
  y = rounded(y, kept);

  return record("linear", y, {x, w, b},
                [x, w, rows, out, in, kept](const Node& node, const Tensor& grad) -> Gradients {
                  const Tensor dy = wide(grad.contiguous());
                  Tensor dx, dw, db;
                  dispatch(dy.dtype(), "linear", [&, x = wide(x), w = wide(w)](auto zero) {
                    using T = decltype(zero);
                    if (node.needs(0)) {
                      dx = Tensor::empty(x.shape(), x.dtype());
                      gemm(plain, plain, rows, in, out, T(1), dy.data<T>(), out, w.data<T>(), in,
                           T(0), dx.data<T>(), in);
                    }
                    if (node.needs(1)) {
                      dw = Tensor::empty(w.shape(), w.dtype());
                      gemm(transposed, plain, out, in, rows, T(1), dy.data<T>(), out, x.data<T>(),
                           in, T(0), dw.data<T>(), in);
                    }
                  });
                  if (node.needs(2)) db = sum_of_rows(dy, out);
                  return {rounded(dx, kept), rounded(dw, kept), rounded(db, kept)};
                });
}

}  // namespace ringside::autograd
