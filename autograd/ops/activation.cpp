// relu, silu, swiglu: the nonlinear functions between two linear layers.
#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/exp.hpp"
#include "autograd/kernels/threads/parallel.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

constexpr std::int64_t grain = 1 << 14;  // elements that are enough work for one more thread

}  // namespace

// x [...] -> y = max(x, 0), same shape
//
//     dy/dx = 1 if x > 0, else 0
Tensor relu(const Tensor& input) {
  const Tensor x = input.contiguous();
  const Tensor y = empty_like(x);
  if (x.device() != Device::cpu)
    device_kernels(x.device()).relu(x, y);
  else
    dispatch(x.dtype(), "relu", [&](auto zero) {
      using T = decltype(zero);
      const T* const px = x.data<T>();
      T* const py = y.data<T>();
      parallel_for(x.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i)
          py[i] = px[i] < 0 ? 0 : px[i];  // NaN stays NaN, so that a broken model shows it
      });
    });
  return record("relu", y, {x}, [x](const Node&, const Tensor& grad) -> Gradients {
    const Tensor dy = grad.contiguous(), dx = empty_like(x);
    if (x.device() != Device::cpu)
      device_kernels(x.device()).relu_backward(dy, x, dx);
    else
      dispatch(x.dtype(), "relu", [&](auto zero) {
        using T = decltype(zero);
        const T *const px = x.data<T>(), *const pdy = dy.data<T>();
        T* const pdx = dx.data<T>();
        parallel_for(x.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
          for (std::int64_t i = begin; i < end; ++i) pdx[i] = px[i] > 0 ? pdy[i] : 0;
        });
      });
    return {dx};
  });
}

// x [...] -> y = x s, s = sigmoid(x), same shape
//
//     dy/dx = s + x s (1 - s) = s (1 + x (1 - s))
Tensor silu(const Tensor& input) {
  const Tensor x = input.contiguous();
  const Tensor y = empty_like(x);
  if (x.device() != Device::cpu)
    device_kernels(x.device()).silu(x, y);
  else
    dispatch(x.dtype(), "silu", [&](auto zero) {
      using T = decltype(zero);
      const T* const px = x.data<T>();
      T* const py = y.data<T>();
      parallel_for(x.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) py[i] = px[i] * sigmoid(px[i]);
      });
    });
  return record("silu", y, {x}, [x](const Node&, const Tensor& grad) -> Gradients {
    const Tensor dy = grad.contiguous(), dx = empty_like(x);
    if (x.device() != Device::cpu)
      device_kernels(x.device()).silu_backward(dy, x, dx);
    else
      dispatch(x.dtype(), "silu", [&](auto zero) {
        using T = decltype(zero);
        const T *const px = x.data<T>(), *const pdy = dy.data<T>();
        T* const pdx = dx.data<T>();
        parallel_for(x.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
          for (std::int64_t i = begin; i < end; ++i) {
            const T s = sigmoid(px[i]);
            pdx[i] = pdy[i] * s * (1 + px[i] * (1 - s));
          }
        });
      });
    return {dx};
  });
}

// g (gate), u (up), both [...] -> y = silu(g) u, same shape.
//
//     dy/du = silu(g) = g s        dy/dg = u s (1 + g (1 - s))        s = sigmoid(g)
//
// s is not saved: backward computes it again.
Tensor swiglu(const Tensor& gate, const Tensor& up) {
  require_alike("swiglu", gate, up);
  require_same_shape("swiglu", gate, up);
  const Tensor g = gate.contiguous(), u = up.contiguous();
  const Tensor y = empty_like(g);
  if (g.device() != Device::cpu)
    device_kernels(g.device()).swiglu(g, u, y);
  else
    dispatch_stored(g.dtype(), "swiglu", [&](auto zero) {
      using S = decltype(zero);
      using T = Compute<S>;
      const S *const pg = g.data<S>(), *const pu = u.data<S>();
      S* const py = y.data<S>();
      parallel_for(g.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) {
          const T gi = pg[i], ui = pu[i];
          py[i] = gi * sigmoid(gi) * ui;
        }
      });
    });
  return record("swiglu", y, {g, u}, [g, u](const Node&, const Tensor& grad) -> Gradients {
    const Tensor dy = grad.contiguous(), dg = empty_like(g), du = empty_like(u);
    if (g.device() != Device::cpu)
      device_kernels(g.device()).swiglu_backward(dy, g, u, dg, du);
    else
      dispatch_stored(g.dtype(), "swiglu", [&](auto zero) {
        using S = decltype(zero);
        using T = Compute<S>;
        const S *const pg = g.data<S>(), *const pu = u.data<S>(), *const pdy = dy.data<S>();
        S *const pdg = dg.data<S>(), *const pdu = du.data<S>();
        parallel_for(g.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
          for (std::int64_t i = begin; i < end; ++i) {
            const T gi = pg[i], ui = pu[i], dyi = pdy[i], s = sigmoid(gi);
            pdu[i] = dyi * gi * s;
            pdg[i] = dyi * ui * s * (1 + gi * (1 - s));
          }
        });
      });
    return {dg, du};
  });
}

}  // namespace ringside::autograd
