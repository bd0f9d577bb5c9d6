// add, mul, scale: elementwise, with broadcasting.
#include <algorithm>

#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/rows.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

// [4, 1, 3] and [2, 1] -> [4, 2, 3]: aligned at the right; sizes of 1 and missing ones are
// stretched.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b) {
  Shape shape(std::max(a.size(), b.size()));
  for (std::size_t i = 1; i <= shape.size(); ++i) {
    const std::int64_t from_a = i <= a.size() ? a[a.size() - i] : 1,
                       from_b = i <= b.size() ? b[b.size() - i] : 1;
    require(from_a == from_b || from_a == 1 || from_b == 1,
            "{}: shapes {} and {} cannot be broadcast together", op, a, b);
    shape[shape.size() - i] = from_a == 1 ? from_b : from_a;
  }
  return shape;
}

// y = f(a, b) for each element: on the CPU by the loops here, on a device by its `kernel`.
using DeviceKernel = void (DeviceKernels::*)(const Tensor& a, const Tensor& b,
                                             const Tensor& y) const;
template <class F>
Tensor combine(const char* op, const Tensor& a, const Tensor& b, F f, DeviceKernel kernel) {
  require_alike(op, a, b);
  const Tensor y = Tensor::empty(broadcast_shape(op, a.shape(), b.shape()), a.dtype(), a.device());
  if (a.device() != Device::cpu) {
    (device_kernels(a.device()).*kernel)(a, b, y);
    return y;
  }
  dispatch_stored(a.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    const T* const pa = a.data<T>();
    const T* const pb = b.data<T>();
    T* const py = y.data<T>();
    if (a.shape() == b.shape() && a.is_contiguous() && b.is_contiguous()) {
      parallel_for(y.elements(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) py[i] = f(pa[i], pb[i]);
      });
      return;
    }
    const Rows a_rows(y.shape(), stretched_strides(a.shape(), a.strides(), y.shape()));
    const Rows b_rows(y.shape(), stretched_strides(b.shape(), b.strides(), y.shape()));
    const std::int64_t n = a_rows.length(), a_step = a_rows.element_stride(),
                       b_step = b_rows.element_stride();
    parallel_for(a_rows.count(), row_grain(n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* const ra = pa + a_rows.offset(row);
        const T* const rb = pb + b_rows.offset(row);
        T* const ry = py + row * n;
        if (a_step == 1 && b_step == 1) {
#pragma omp simd
          for (std::int64_t i = 0; i < n; ++i) ry[i] = f(ra[i], rb[i]);
        } else {
          for (std::int64_t i = 0; i < n; ++i) ry[i] = f(ra[i * a_step], rb[i * b_step]);
        }
      }
    });
  });
  return y;
}

// The gradient of a stretched input: the sum over all copies of each element. If the input was not
// stretched, it is dy itself.
Tensor sum_to(const Tensor& dy, const Shape& shape) {
  if (dy.shape() == shape) return dy;
  const Tensor dx = Tensor::zeros(shape, dy.dtype(), dy.device());
  if (dy.device() != Device::cpu) {
    device_kernels(dy.device()).sum_to(dy, dx);
    return dx;
  }
  dispatch(dy.dtype(), "sum_to", [&](auto zero) {
    using T = decltype(zero);
    const Rows from(dy), to(dy.shape(), stretched_strides(shape, dx.strides(), dy.shape()));
    const std::int64_t n = from.length(), from_step = from.element_stride();
    const std::int64_t to_step = to.element_stride();  // 0: the rows are summed
    for (std::int64_t row = 0; row < from.count(); ++row) {
      const T* const f = dy.data<T>() + from.offset(row);
      T* const t = dx.data<T>() + to.offset(row);
      if (to_step == 0) {
        T total = 0;
        for (std::int64_t i = 0; i < n; ++i) total += f[i * from_step];
        *t += total;
      } else {
        for (std::int64_t i = 0; i < n; ++i) t[i * to_step] += f[i * from_step];
      }
    }
  });
  return dx;
}

}  // namespace

// a, b -> y = a + b, broadcast.  dy/da = dy/db = 1
Tensor add(const Tensor& a, const Tensor& b) {
  const Tensor y = combine(
      "add", a, b, [](auto x1, auto x2) { return x1 + x2; }, &DeviceKernels::add);
  return record(
      "add", y, {a, b},
      [shape_a = a.shape(), shape_b = b.shape()](const Node& node, const Tensor& dy) -> Gradients {
        return {node.needs(0) ? sum_to(dy, shape_a) : Tensor(),
                node.needs(1) ? sum_to(dy, shape_b) : Tensor()};
      });
}

namespace {
Tensor product(const char* op, const Tensor& a, const Tensor& b) {
  return combine(
      op, a, b, [](auto x1, auto x2) { return x1 * x2; }, &DeviceKernels::multiply);
}
}  // namespace

// a, b -> y = a b, broadcast.  dy/da = b, dy/db = a
Tensor mul(const Tensor& a, const Tensor& b) {
  const Tensor y = product("mul", a, b);
  return record("mul", y, {a, b}, [a, b](const Node& node, const Tensor& dy) -> Gradients {
    return {node.needs(0) ? sum_to(product("mul", dy, b), a.shape()) : Tensor(),
            node.needs(1) ? sum_to(product("mul", dy, a), b.shape()) : Tensor()};
  });
}

namespace {
Tensor times(const Tensor& x, double factor) {
  if (x.device() == Device::cpu) return product("scale", x, Tensor::scalar(factor, x.dtype()));
  const Tensor y = empty_like(x);
  device_kernels(x.device()).scale(x.detach().contiguous(), factor, y);
  return y;
}
}  // namespace

// x -> y = factor x.  dy/dx = factor
Tensor scale(const Tensor& x, double factor) {
  return record(
      "scale", times(x, factor), {x},
      [factor](const Node&, const Tensor& dy) -> Gradients { return {times(dy, factor)}; });
}

}  // namespace ringside::autograd
