// relu, gelu, silu, swiglu: the nonlinear functions between two linear layers.
// kernels/cpu/activation.cpp has their formulas and loops.
#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

// A function of single elements, x [...] -> y, same shape, by kernels of its forward and backward.
Tensor of_elements(const char* op, const Tensor& input,
                   void (DeviceKernels::*forward)(const Tensor& x, const Tensor& y) const,
                   void (DeviceKernels::*backward)(const Tensor& dy, const Tensor& x,
                                                   const Tensor& dx) const) {
  const Tensor x = input.contiguous(), y = empty_like(x);
  (kernels_of(x).*forward)(x, y);
  return record(op, y, {x}, [x, backward](const Node&, const Tensor& dy) -> Gradients {
    const Tensor dx = empty_like(x);
    (kernels_of(x).*backward)(dy.contiguous(), x, dx);
    return {dx};
  });
}

}  // namespace

// y = max(x, 0)
Tensor relu(const Tensor& x) {
  return of_elements("relu", x, &DeviceKernels::relu, &DeviceKernels::relu_backward);
}

// y = x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3))
Tensor gelu(const Tensor& x) {
  return of_elements("gelu", x, &DeviceKernels::gelu, &DeviceKernels::gelu_backward);
}

// y = x sigmoid(x)
Tensor silu(const Tensor& x) {
  return of_elements("silu", x, &DeviceKernels::silu, &DeviceKernels::silu_backward);
}

// g (gate), u (up), both [...] -> y = silu(g) u, same shape. sigmoid(g) is not saved: backward
// computes it again.
Tensor swiglu(const Tensor& gate, const Tensor& up) {
  require_alike("swiglu", gate, up);
  require_same_shape("swiglu", gate, up);
  const Tensor g = gate.contiguous(), u = up.contiguous(), y = empty_like(g);
  kernels_of(g).swiglu(g, u, y);
  return record("swiglu", y, {g, u}, [g, u](const Node&, const Tensor& dy) -> Gradients {
    const Tensor dg = empty_like(g), du = empty_like(u);
    kernels_of(g).swiglu_backward(dy.contiguous(), g, u, dg, du);
    return {dg, du};
  });
}

}  // namespace ringside::autograd
