// Sums, products and multiples of elements, with broadcasting.
#include <algorithm>

#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "autograd/kernels/cpu/for_each_element.hpp"
#include "autograd/kernels/rows.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

// y = f(a, b) for each element; a and b are broadcast to y's shape.
template <class F>
void combine(const char* op, const Tensor& a, const Tensor& b, const Tensor& y, F f) {
  dispatch_stored(y.dtype(), op, [&]<class T>(T) {
    const T* const pa = a.data<T>();
    const T* const pb = b.data<T>();
    T* const py = y.data<T>();
    const auto is_whole = [&](const Tensor& x) {
      return x.shape() == y.shape() && x.is_contiguous();
    };
    if (is_whole(a) && is_whole(b) && is_whole(y))
      return for_each_element(y.elements(), 1 << 16,
                              [=](std::int64_t i) { py[i] = f(pa[i], pb[i]); });
    const Rows a_rows(y.shape(), stretched_strides(a.shape(), a.strides(), y.shape()));
    const Rows b_rows(y.shape(), stretched_strides(b.shape(), b.strides(), y.shape()));
    const Rows y_rows(y);
    const std::int64_t n = y_rows.length(), a_step = a_rows.element_stride(),
                       b_step = b_rows.element_stride(), y_step = y_rows.element_stride();
    parallel_for(y_rows.count(), row_grain(n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* const ra = pa + a_rows.offset(row);
        const T* const rb = pb + b_rows.offset(row);
        T* const ry = py + y_rows.offset(row);
        if (a_step == 1 && b_step == 1 && y_step == 1) {
#pragma omp simd
          for (std::int64_t i = 0; i < n; ++i) ry[i] = f(ra[i], rb[i]);
        } else {
          for (std::int64_t i = 0; i < n; ++i) ry[i * y_step] = f(ra[i * a_step], rb[i * b_step]);
        }
      }
    });
  });
}

}  // namespace

void CpuKernels::add(const Tensor& a, const Tensor& b, const Tensor& y) const {
  combine("add", a, b, y, [](auto ai, auto bi) { return ai + bi; });
}
void CpuKernels::multiply(const Tensor& a, const Tensor& b, const Tensor& y) const {
  combine("mul", a, b, y, [](auto ai, auto bi) { return ai * bi; });
}

// Threads divide the elements of a row, not the rows: many rows are added to one.
void CpuKernels::sum_to(const Tensor& y, const Tensor& x) const {
  const Tensor terms = to_compute_dtype(y), sums = compute_buffer(x);
  sums.fill_(0);
  dispatch(sums.dtype(), "sum_to", [&]<class T>(T) {
    const Rows from(terms), to(y.shape(), stretched_strides(x.shape(), sums.strides(), y.shape()));
    const std::int64_t rows = from.count(), n = from.length(), from_step = from.element_stride();
    const std::int64_t to_step = to.element_stride();  // 0: the elements of a row are summed
    parallel_for(to_step == 0 ? 1 : n, 1 + (1 << 16) / std::max<std::int64_t>(rows, 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = 0; row < rows; ++row) {
                     const T* const f = terms.data<T>() + from.offset(row);
                     T* const t = sums.data<T>() + to.offset(row);
                     if (to_step == 0) {
                       T total = 0;
                       for (std::int64_t i = 0; i < n; ++i) total += f[i * from_step];
                       *t += total;
                     } else if (to_step == 1 && from_step == 1) {
#pragma omp simd
                       for (std::int64_t i = begin; i < end; ++i) t[i] += f[i];
                     } else {
                       for (std::int64_t i = begin; i < end; ++i)
                         t[i * to_step] += f[i * from_step];
                     }
                   }
                 });
  });
  convert_into(x, sums);
}

void CpuKernels::scale(const Tensor& x, double factor, const Tensor& y) const {
  combine("scale", x, x, y, [=]<class S>(S xi, S) { return xi * static_cast<Compute<S>>(factor); });
}
void CpuKernels::scale_by(const Tensor& x, const Tensor& factor) const {
  if (const double f = factor.item(); f != 1) scale(x, f, x);
}

}  // namespace ringside::autograd
