// add, mul, scale: elementwise, with broadcasting.
#include <algorithm>

#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
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

// a, b -> a new tensor of their broadcast shape, for the result.
Tensor empty_broadcast(const char* op, const Tensor& a, const Tensor& b) {
  require_alike(op, a, b);
  return Tensor::empty(broadcast_shape(op, a.shape(), b.shape()), a.dtype(), a.device());
}

// The gradient of a stretched input: the sum over all copies of each element. If the input was not
// stretched, it is dy itself.
Tensor sum_to(const Tensor& dy, const Shape& shape) {
  if (dy.shape() == shape) return dy;
  const Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
  kernels_of(dy).sum_to(dy, dx);
  return dx;
}

Tensor product(const Tensor& a, const Tensor& b) {
  const Tensor y = empty_broadcast("mul", a, b);
  kernels_of(y).multiply(a, b, y);
  return y;
}

Tensor times(const Tensor& x, double factor) {
  const Tensor y = empty_like(x);
  kernels_of(x).scale(x, factor, y);
  return y;
}

}  // namespace

// a, b -> y = a + b, broadcast.  dy/da = dy/db = 1
Tensor add(const Tensor& a, const Tensor& b) {
  const Tensor y = empty_broadcast("add", a, b);
  kernels_of(y).add(a, b, y);
  return record(
      "add", y, {a, b},
      [shape_a = a.shape(), shape_b = b.shape()](const Node& node, const Tensor& dy) -> Gradients {
        return {node.needs(0) ? sum_to(dy, shape_a) : Tensor(),
                node.needs(1) ? sum_to(dy, shape_b) : Tensor()};
      });
}

// a, b -> y = a b, broadcast.  dy/da = b, dy/db = a
Tensor mul(const Tensor& a, const Tensor& b) {
  const Tensor y = product(a, b);
  return record("mul", y, {a, b}, [a, b](const Node& node, const Tensor& dy) -> Gradients {
    return {node.needs(0) ? sum_to(product(dy, b), a.shape()) : Tensor(),
            node.needs(1) ? sum_to(product(dy, a), b.shape()) : Tensor()};
  });
}

// x -> y = factor x.  dy/dx = factor
Tensor scale(const Tensor& x, double factor) {
  return record(
      "scale", times(x, factor), {x},
      [factor](const Node&, const Tensor& dy) -> Gradients { return {times(dy, factor)}; });
}

}  // namespace ringside::autograd
