// relu, silu, swiglu: the nonlinear functions between two linear layers. kernels/cpu/activation.cpp
// has their formulas and loops.
#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

// x [...] -> y = max(x, 0), same shape
Tensor relu(const Tensor& input) {
  const Tensor x = input.contiguous(), y = empty_like(x);
  kernels_of(x).relu(x, y);
  return record("relu", y, {x}, [x](const Node&, const Tensor& dy) -> Gradients {
    const Tensor dx = empty_like(x);
    kernels_of(x).relu_backward(dy.contiguous(), x, dx);
    return {dx};
  });
}

// x [...] -> y = x sigmoid(x), same shape
Tensor silu(const Tensor& input) {
  const Tensor x = input.contiguous(), y = empty_like(x);
  kernels_of(x).silu(x, y);
  return record("silu", y, {x}, [x](const Node&, const Tensor& dy) -> Gradients {
    const Tensor dx = empty_like(x);
    kernels_of(x).silu_backward(dy.contiguous(), x, dx);
    return {dx};
  });
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
