// Views and copies: members of Tensor that are ops. A view shares the memory of its input; its
// backward is the opposite view of the gradient.
#include <algorithm>

#include "autograd/engine/node.hpp"
#include "autograd/tensor/layout.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

namespace {

std::size_t dimension(const char* op, const Tensor& x, std::int64_t d) {
  const std::int64_t index = d < 0 ? d + x.dim() : d;
  require(index >= 0 && index < x.dim(), "{}: dimension {} of a tensor of shape {}", op, d,
          x.shape());
  return static_cast<std::size_t>(index);
}

// The shape with a -1 replaced by the size that is left.
Shape resolved(const Tensor& x, Shape shape) {
  const auto inferred = std::find(shape.begin(), shape.end(), -1);
  if (inferred != shape.end()) {
    *inferred = 1;
    const std::int64_t known = elements_of(shape);
    *inferred = known > 0 && x.elements() % known == 0 ? x.elements() / known : -1;
  }
  const bool negative =
      std::any_of(shape.begin(), shape.end(), [](std::int64_t size) { return size < 0; });
  require(!negative && elements_of(shape) == x.elements(),
          "reshape: {} with {} elements cannot become {}", x.shape(), x.elements(), shape);
  return shape;
}

Tensor copy_of(const char* op, const Tensor& x) {
  const Tensor y = empty_like(x);
  y.copy_(x);
  return record(op, y, {x}, [](const Node&, const Tensor& dy) -> Gradients { return {dy}; });
}

}  // namespace

Tensor Tensor::reshape(Shape shape) const {
  const Tensor x = contiguous();
  shape = resolved(x, std::move(shape));
  const Tensor y = make_view(x, x.offset(), shape, row_major_strides(shape));
  return record("reshape", y, {x},
                [before = x.shape()](const Node&, const Tensor& dy) -> Gradients {
                  return {dy.reshape(before)};
                });
}

Tensor Tensor::transpose(std::int64_t dim0, std::int64_t dim1) const {
  const std::size_t d0 = dimension("transpose", *this, dim0),
                    d1 = dimension("transpose", *this, dim1);
  Shape new_shape = shape(), new_strides = strides();
  std::swap(new_shape[d0], new_shape[d1]);
  std::swap(new_strides[d0], new_strides[d1]);
  const Tensor y = make_view(*this, offset(), std::move(new_shape), std::move(new_strides));
  return record("transpose", y, {*this}, [dim0, dim1](const Node&, const Tensor& dy) -> Gradients {
    return {dy.transpose(dim0, dim1)};
  });
}

Tensor Tensor::narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const {
  const std::size_t d = dimension("narrow", *this, dim);
  require(start >= 0 && length >= 0 && start + length <= shape()[d],
          "narrow: [{}, {}) of dimension {} of a tensor of shape {}", start, start + length, dim,
          shape());
  Shape new_shape = shape();
  new_shape[d] = length;
  const Tensor y =
      make_view(*this, offset() + start * strides()[d], std::move(new_shape), strides());
  return record("narrow", y, {*this},
                [before = shape(), dim, start, length](const Node&, const Tensor& dy) -> Gradients {
                  const Tensor dx = Tensor::zeros(before, dy.dtype(), dy.device());
                  dx.narrow(dim, start, length).copy_(dy);
                  return {dx};
                });
}

Tensor Tensor::contiguous() const {
  return is_contiguous() ? *this : copy_of("contiguous", *this);
}

Tensor Tensor::clone() const {
  return copy_of("clone", *this);
}

Tensor Tensor::to(Device target) const {
  if (device() == target) return *this;
  const Tensor y = empty(shape(), dtype(), target);
  y.copy_(*this);
  if (!is_recorded({*this})) return y;  // a plain copy, which a profile does not count as an op
  return record("to", y, {*this}, [before = device()](const Node&, const Tensor& dy) -> Gradients {
    return {dy.to(before)};
  });
}

}  // namespace ringside::autograd
