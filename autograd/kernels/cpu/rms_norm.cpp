// The rows of rms_norm. Zhang and Sennrich, "Root mean square layer normalization" (NeurIPS 2019).
#include <cmath>

#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "autograd/kernels/rows.hpp"

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

}  // namespace

// x [rows, n], w [n] -> y [rows, n], r [rows]
void CpuKernels::rms_norm(const Tensor& x, const Tensor& weight, double eps, const Tensor& y,
                          const Tensor& r) const {
  const std::int64_t n = weight.elements();
  dispatch_stored(x.dtype(), "rms_norm", [&]<class S>(S) {
    parallel_for(r.elements(), row_grain(n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        r.data<Compute<S>>()[row] =
            normalise_row(x.data<S>() + row * n, weight.data<S>(), y.data<S>() + row * n, n, eps);
    });
  });
}

void CpuKernels::add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                              double eps, const Tensor& sum, const Tensor& y,
                              const Tensor& r) const {
  const std::int64_t n = weight.elements();
  dispatch_stored(x.dtype(), "add_rms_norm", [&]<class S>(S) {
    using T = Compute<S>;
    parallel_for(r.elements(), row_grain(n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const S *const pa = x.data<S>() + row * n, *const pb = residual.data<S>() + row * n;
        S* const ps = sum.data<S>() + row * n;
#pragma omp simd
        for (std::int64_t i = 0; i < n; ++i) {
          const T ai = pa[i], bi = pb[i];
          ps[i] = ai + bi;
        }
        r.data<T>()[row] = normalise_row(ps, weight.data<S>(), y.data<S>() + row * n, n, eps);
      }
    });
  });
}

// x [rows, n], r [rows], w [n], dy [rows, n] -> dx [rows, n], dw [n]. Each piece of rows sums its
// own dw, the first one in place, and these are added in order.
void CpuKernels::rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                   const Tensor& r, const Tensor& dx, const Tensor& dweight) const {
  const std::int64_t n = weight.elements(), rows = r.elements(),
                     pieces = pieces_of(rows, row_grain(n));
  const Tensor dw_of_first = compute_buffer(dweight),
               dw_of_others = Tensor::zeros({pieces - 1, n}, r.dtype());
  dw_of_first.fill_(0);
  dispatch_stored(x.dtype(), "rms_norm", [&]<class S>(S) {
    using T = Compute<S>;
    const S *const px = x.data<S>(), *const pdy = dy.data<S>(), *const pw = weight.data<S>();
    S* const pdx = dx.data<S>();
    T *const first = dw_of_first.data<T>(), *const others = dw_of_others.data<T>();
    parallel_for_pieces(rows, row_grain(n), [&](int piece, std::int64_t begin, std::int64_t end) {
      T* const dw = piece == 0 ? first : others + (piece - 1) * n;
      for (std::int64_t row = begin; row < end; ++row)
        normalise_row_backward(pdy + row * n, px + row * n, pw, r.data<T>()[row], pdx + row * n, dw,
                               n);
    });
    for (std::int64_t piece = 1; piece < pieces; ++piece)
      for (std::int64_t i = 0; i < n; ++i) first[i] += others[(piece - 1) * n + i];
  });
  convert_into(dweight, dw_of_first);
}

}  // namespace ringside::autograd
