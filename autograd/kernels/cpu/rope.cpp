// rope: rotates pairs of elements.
#include <utility>

#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "autograd/kernels/rows.hpp"

namespace ringside::autograd {

// x [..., T, D] -> y: each pair (x_i, x_{i + D/2}) of row t is rotated by the angle of position
// first_position + t and frequency i:
//
//     | y_i       |   | cos  -sin | | x_i       |
//     | y_{i+D/2} | = | sin   cos | | x_{i+D/2} |
//
// Direction -1 rotates back: sin changes its sign.
void CpuKernels::rope(const Tensor& x, const Tensor& cos_table, const Tensor& sin_table,
                      std::int64_t first_position, int direction, const Tensor& y) const {
  const std::int64_t half = x.size(-1) / 2, tokens = x.size(-2);
  // Rows come in the order in which they lie in memory: often the heads of a token are neighbours.
  Shape shape = x.shape(), x_strides = x.strides(), y_strides = y.strides();
  std::int64_t heads = 1;  // that come before the next token
  if (const std::size_t n = shape.size(); n > 2 && x_strides[n - 3] < x_strides[n - 2]) {
    heads = shape[n - 3];
    for (Shape* each : {&shape, &x_strides, &y_strides}) std::swap((*each)[n - 3], (*each)[n - 2]);
  }
  const Rows x_rows(shape, x_strides), y_rows(shape, y_strides);
  dispatch_stored(x.dtype(), "rope", [&]<class S>(S) {
    using T = Compute<S>;
    const T sign = static_cast<T>(direction);
    const T *const all_cos = cos_table.data<T>(), *const all_sin = sin_table.data<T>();
    const S* const from = x.data<S>();
    S* const into = y.data<S>();
    parallel_for(x_rows.count(), row_grain(2 * half), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t position = first_position + row / heads % tokens;
        const T *const cos = all_cos + position * half, *const sin = all_sin + position * half;
        const S* const px = from + x_rows.offset(row);
        S* const py = into + y_rows.offset(row);
#pragma omp simd
        for (std::int64_t i = 0; i < half; ++i) {
          const T s = sin[i] * sign, low = px[i], high = px[i + half];
          py[i] = low * cos[i] - high * s;
          py[i + half] = high * cos[i] + low * s;
        }
      }
    });
  });
}

}  // namespace ringside::autograd
