// GELU by its tanh form, written with sigmoid, because (1 + tanh(u / 2)) / 2 = sigmoid(u):
//
//     y = x s                              s = sigmoid(u)
//     dy/dx = s + x s (1 - s) du/dx        u = 2 sqrt(2/pi) (x + 0.044715 x^3)
//
// Hendrycks and Gimpel, "Gaussian error linear units" (2016), section 2; torch's gelu with
// approximate="tanh". It differs from x times the normal distribution function by at most 0.0005.
// GPU kernels include this header.
#pragma once

namespace ringside::autograd {

inline constexpr double gelu_slope = 1.5957691216057308, gelu_cubic = 0.044715;  // 2 sqrt(2/pi)

template <class T>
constexpr T gelu_u(T x) {
  return T(gelu_slope) * x * (1 + T(gelu_cubic) * x * x);
}
template <class T>
constexpr T gelu_du(T x) {
  return T(gelu_slope) * (1 + 3 * T(gelu_cubic) * x * x);
}

}  // namespace ringside::autograd
