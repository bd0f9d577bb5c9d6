// relu, silu, swiglu.
#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "autograd/kernels/cpu/for_each_element.hpp"
#include "autograd/kernels/exp.hpp"

namespace ringside::autograd {

namespace {

constexpr std::int64_t grain = 1 << 14;  // elements that are enough work for one more thread

}  // namespace

// y = max(x, 0)        dy/dx = 1 if x > 0, else 0
void CpuKernels::relu(const Tensor& x, const Tensor& y) const {
  dispatch(x.dtype(), "relu", [&](auto zero) {
    using T = decltype(zero);
    const T* const px = x.data<T>();
    T* const py = y.data<T>();
    for_each_element(x.elements(), grain, [=](std::int64_t i) {
      py[i] = px[i] < 0 ? 0 : px[i];  // NaN stays NaN, so that a broken model shows it
    });
  });
}
void CpuKernels::relu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const {
  dispatch(x.dtype(), "relu", [&](auto zero) {
    using T = decltype(zero);
    const T *const px = x.data<T>(), *const pdy = dy.data<T>();
    T* const pdx = dx.data<T>();
    for_each_element(x.elements(), grain, [=](std::int64_t i) { pdx[i] = px[i] > 0 ? pdy[i] : 0; });
  });
}

// y = x s        dy/dx = s + x s (1 - s) = s (1 + x (1 - s))        s = sigmoid(x)
void CpuKernels::silu(const Tensor& x, const Tensor& y) const {
  dispatch(x.dtype(), "silu", [&](auto zero) {
    using T = decltype(zero);
    const T* const px = x.data<T>();
    T* const py = y.data<T>();
    for_each_element(x.elements(), grain, [=](std::int64_t i) { py[i] = px[i] * sigmoid(px[i]); });
  });
}
void CpuKernels::silu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const {
  dispatch(x.dtype(), "silu", [&](auto zero) {
    using T = decltype(zero);
    const T *const px = x.data<T>(), *const pdy = dy.data<T>();
    T* const pdx = dx.data<T>();
    for_each_element(x.elements(), grain, [=](std::int64_t i) {
      const T s = sigmoid(px[i]);
      pdx[i] = pdy[i] * s * (1 + px[i] * (1 - s));
    });
  });
}

// y = silu(g) u        dy/du = silu(g) = g s        dy/dg = u s (1 + g (1 - s))        s =
// sigmoid(g)
void CpuKernels::swiglu(const Tensor& gate, const Tensor& up, const Tensor& y) const {
  dispatch_stored(gate.dtype(), "swiglu", [&](auto zero) {
    using S = decltype(zero);
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
  dispatch_stored(gate.dtype(), "swiglu", [&](auto zero) {
    using S = decltype(zero);
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
