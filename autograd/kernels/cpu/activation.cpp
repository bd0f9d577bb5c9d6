// relu, gelu, silu, swiglu.
#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "autograd/kernels/cpu/for_each_element.hpp"
#include "autograd/kernels/exp.hpp"
#include "autograd/kernels/gelu.hpp"

namespace ringside::autograd {

namespace {

constexpr std::int64_t grain = 1 << 14;  // elements that are enough work for one more thread

// y = f(a, b) for each element.
template <class F>
void compute_pairs(const char* op, const Tensor& a, const Tensor& b, const Tensor& y, F f) {
  dispatch_stored(y.dtype(), op, [&]<class S>(S) {
    using T = Compute<S>;
    const S *const pa = a.data<S>(), *const pb = b.data<S>();
    S* const py = y.data<S>();
    for_each_element(y.elements(), grain, [=](std::int64_t i) { py[i] = f(T(pa[i]), T(pb[i])); });
  });
}

}  // namespace

// y = max(x, 0)        dy/dx = 1 if x > 0, else 0
void CpuKernels::relu(const Tensor& x, const Tensor& y) const {
  // NaN stays NaN, so that a broken model shows it.
  compute_pairs("relu", x, x, y, [](auto xi, auto) { return xi < 0 ? 0 : xi; });
}
void CpuKernels::relu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const {
  compute_pairs("relu", dy, x, dx, [](auto dyi, auto xi) { return xi > 0 ? dyi : 0; });
}

// y = x s        dy/dx = s + x s (1 - s) du/dx        s = sigmoid(u)        u, du/dx: gelu.hpp
void CpuKernels::gelu(const Tensor& x, const Tensor& y) const {
  compute_pairs("gelu", x, x, y, [](auto xi, auto) { return xi * sigmoid(gelu_u(xi)); });
}
void CpuKernels::gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const {
  compute_pairs("gelu", dy, x, dx, [](auto dyi, auto xi) {
    const auto s = sigmoid(gelu_u(xi));
    return dyi * (s + xi * s * (1 - s) * gelu_du(xi));
  });
}

// y = x s        dy/dx = s + x s (1 - s) = s (1 + x (1 - s))        s = sigmoid(x)
void CpuKernels::silu(const Tensor& x, const Tensor& y) const {
  compute_pairs("silu", x, x, y, [](auto xi, auto) { return xi * sigmoid(xi); });
}
void CpuKernels::silu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const {
  compute_pairs("silu", dy, x, dx, [](auto dyi, auto xi) {
    const auto s = sigmoid(xi);
    return dyi * s * (1 + xi * (1 - s));
  });
}

// With s = sigmoid(g):
//
//     y = silu(g) u        dy/du = silu(g) = g s        dy/dg = u s (1 + g (1 - s))
void CpuKernels::swiglu(const Tensor& gate, const Tensor& up, const Tensor& y) const {
  dispatch_stored(gate.dtype(), "swiglu", [&]<class S>(S) {
    using T = Compute<S>;
    const S *const pg = gate.data<S>(), *const pu = up.data<S>();
    S* const py = y.data<S>();
    for_each_element(y.elements(), grain, [=](std::int64_t i) {
      const T gi = pg[i], ui = pu[i];
      py[i] = gi * sigmoid(gi) * ui;
    });
  });
}
void CpuKernels::swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up,
                                 const Tensor& dgate, const Tensor& dup) const {
  dispatch_stored(gate.dtype(), "swiglu", [&]<class S>(S) {
    using T = Compute<S>;
    const S *const pg = gate.data<S>(), *const pu = up.data<S>(), *const pdy = dy.data<S>();
    S *const pdg = dgate.data<S>(), *const pdu = dup.data<S>();
    for_each_element(dy.elements(), grain, [=](std::int64_t i) {
      const T gi = pg[i], ui = pu[i], dyi = pdy[i], s = sigmoid(gi);
      pdu[i] = dyi * gi * s;
      pdg[i] = dyi * ui * s * (1 + gi * (1 - s));
    });
  });
}

}  // namespace ringside::autograd
