// rms_norm, alone and fused with the residual connection before it. Zhang and Sennrich, "Root mean
// square layer normalization" (NeurIPS 2019).
#include <cmath>

#include "autograd/engine/node.hpp"
#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/rows.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

// One row: y = x r w with r = 1 / sqrt(mean(x^2) + eps). Returns r. S is the storage type of the
// elements, T their compute type.
template <class S, class T = Compute<S>>
T normalise_row(const S* x, const S* w, S* y, std::int64_t n, double eps) {
  T squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < n; ++i) {
    const T xi = x[i];
    squares += xi * xi;
  }
  const T r =
      static_cast<T>(1 / std::sqrt(static_cast<double>(squares) / static_cast<double>(n) + eps));
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const T xi = x[i], wi = w[i];
    y[i] = xi * r * wi;
  }
  return r;
}

// One row of dx, and the row's part of dw. In y_i = x_i r w_i, r depends on every x:
//
//     dr/dx_j = -r^3 x_j / n
//     dx_j    = r w_j dy_j  -  x_j r^3 / n * sum_i(dy_i w_i x_i)
//     dw_i   += dy_i x_i r
template <class S, class T = Compute<S>>
void normalise_row_backward(const S* dy, const S* x, const S* w, T r, S* dx, T* dw,
                            std::int64_t n) {
  T dot = 0;
#pragma omp simd reduction(+ : dot)
  for (std::int64_t i = 0; i < n; ++i) {
    const T dyi = dy[i], xi = x[i], wi = w[i];
    dot += dyi * wi * xi;
    dw[i] += dyi * xi * r;
  }
  const T factor = dot * r * r * r / static_cast<T>(n);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const T dyi = dy[i], xi = x[i], wi = w[i];
    dx[i] = dyi * wi * r - xi * factor;
  }
}

// x [rows, n], r [rows], w [n], dy [rows, n] -> dx [rows, n], dw [n]. Each piece of rows sums its
// own dw, and these are added in order.
Gradients rms_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& r,
                            const Tensor& dy) {
  if (x.device() != Device::cpu) {
    const Tensor dx = empty_like(x), dw = empty_like(weight);
    device_kernels(x.device()).rms_norm_backward(dy, x, weight, r, dx, dw);
    return {dx, dw};
  }
  const std::int64_t n = weight.elements(), rows = r.elements(),
                     pieces = pieces_of(rows, row_grain(n));
  const Tensor dx = empty_like(x), dw_of_pieces = Tensor::zeros({pieces, n}, r.dtype());
  dispatch_stored(x.dtype(), "rms_norm", [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    const S *const px = x.data<S>(), *const pdy = dy.data<S>(), *const pw = weight.data<S>();
    S* const pdx = dx.data<S>();
    T* const dw = dw_of_pieces.data<T>();
    parallel_for_pieces(rows, row_grain(n), [&](int piece, std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        normalise_row_backward(pdy + row * n, px + row * n, pw, r.data<T>()[row], pdx + row * n,
                               dw + piece * n, n);
    });
    for (std::int64_t piece = 1; piece < pieces; ++piece)
      for (std::int64_t i = 0; i < n; ++i) dw[i] += dw[piece * n + i];
  });
  return {dx, to_storage_dtype(dw_of_pieces.narrow(0, 0, 1).reshape({n}), x.dtype())};
}

void check(const char* op, const Tensor& x, const Tensor& weight) {
  require_alike(op, x, weight);
  require(x.dim() >= 1 && weight.shape() == Shape{x.size(-1)},
          "{}: expected x [..., n] and weight [n], got {} and {}", op, x.shape(), weight.shape());
}

Tensor record_rms_norm(Tensor y, const Tensor& x, const Tensor& w, const Tensor& r) {
  return record("rms_norm", std::move(y), {x, w},
                [x, w, r](const Node&, const Tensor& dy) -> Gradients {
                  return rms_norm_backward(x, w, r, dy.contiguous());
                });
}

}  // namespace

// x [..., n], weight [n] -> y [..., n]. rms_norm_backward, above, is the backward.
Tensor rms_norm(const Tensor& x_input, const Tensor& weight, double eps) {
  check("rms_norm", x_input, weight);
  const Tensor x = x_input.contiguous(), w = weight.contiguous();
  const std::int64_t n = w.elements(), rows = elements_of(leading(x.shape()));
  const Tensor y = empty_like(x), r = Tensor::empty({rows}, compute_dtype(x.dtype()), x.device());
  if (x.device() != Device::cpu)
    device_kernels(x.device()).rms_norm(x, w, eps, y, r);
  else
    dispatch_stored(x.dtype(), "rms_norm", [&](auto zero) {
      using S = decltype(zero);
      parallel_for(rows, row_grain(n), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
          r.data<Compute<S>>()[row] =
              normalise_row(x.data<S>() + row * n, w.data<S>(), y.data<S>() + row * n, n, eps);
      });
    });
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
  const std::int64_t n = w.elements(), rows = elements_of(leading(a.shape()));
  Tensor sum = empty_like(a);
  const Tensor y = empty_like(a), r = Tensor::empty({rows}, compute_dtype(a.dtype()), a.device());
  if (a.device() != Device::cpu)
    device_kernels(a.device()).add_rms_norm(a, b, w, eps, sum, y, r);
  else
    dispatch_stored(a.dtype(), "add_rms_norm", [&](auto zero) {
      using S = decltype(zero);
      using T = Compute<S>;
      parallel_for(rows, row_grain(n), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const S *const pa = a.data<S>() + row * n, *const pb = b.data<S>() + row * n;
          S* const ps = sum.data<S>() + row * n;
#pragma omp simd
          for (std::int64_t i = 0; i < n; ++i) {
            const T ai = pa[i], bi = pb[i];
            ps[i] = ai + bi;
          }
          r.data<T>()[row] = normalise_row(ps, w.data<S>(), y.data<S>() + row * n, n, eps);
        }
      });
    });
  sum = record("add", sum, {a, b}, [](const Node&, const Tensor& dy) -> Gradients {
    return {dy, dy};
  });
  return {sum, record_rms_norm(y, sum, w, r)};
}

}  // namespace ringside::autograd
