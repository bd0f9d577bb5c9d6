#include "exercises/judge/autograd/gradient_probes.hpp"

#include <cmath>
#include <limits>

#include "autograd/engine/node.hpp"
#include "autograd/ops/ops.hpp"

namespace ringside::exercises {

using namespace autograd;

namespace {

// x itself. Backward changes the gradient, a tensor of the shape of x, by `bend`.
template <class Bend>
Tensor bent(const Tensor& x, Bend bend) {
  return record("bent", x.detach().clone(), {x},
                [bend](const Node&, const Tensor& dy) -> Gradients {
                  const Tensor dx = dy.contiguous().clone();
                  bend(dx.values<double>());
                  return {dx};
                });
}

Tensor times_last(const Tensor& x, double factor) {
  return bent(x, [factor](std::span<double> dx) { dx.back() *= factor; });
}

Tensor times_all(const Tensor& x, double factor) {
  return bent(x, [factor](std::span<double> dx) {
    for (double& each : dx) each *= factor;
  });
}

Tensor transposed_gradient(const Tensor& x) {
  return bent(x, [n = x.size(0)](std::span<double> dx) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < i; ++j) std::swap(dx[i * n + j], dx[j * n + i]);
  });
}

// y = exp(x) / sum of exp(x), over all elements.  dx = y (dy - sum of dy y)
Tensor softmax(const Tensor& x) {
  const Tensor y = x.detach().clone();
  double total = 0;
  for (double& each : y.values<double>()) total += each = std::exp(each);
  for (double& each : y.values<double>()) each /= total;
  return record("softmax", y.detach(), {x}, [y](const Node&, const Tensor& dy) -> Gradients {
    const Tensor dx = mul(dy, y);
    const double dot = sum(dx).item();
    for (std::int64_t i = 0; i < y.elements(); ++i)
      dx.values<double>()[i] -= dot * y.values<double>()[i];
    return {dx};
  });
}

// rms_norm of one row, whose backward takes r for a constant.
Tensor norm_by_constant(const Tensor& x, const Tensor& w) {
  const double mean_square = mean(mul(x.detach(), x.detach())).item();
  return mul(scale(x, 1 / std::sqrt(mean_square + 1e-5)), w);
}

Tensor loss_of(const Tensor& z) {
  return cross_entropy(z, Tensor::from({1, -100, 0}, {3}));
}

}  // namespace

const std::vector<GradientProbe> right_gradients = {
    {"linear", [](auto& in) { return linear(in[0], in[1], in[2]); }, {{2, 3, 5}, {4, 5}, {4}}},
    {"a transposed view", [](auto& in) { return in[0].transpose(0, 1); }, {{2, 3}}},
    {"rms_norm", [](auto& in) { return rms_norm(in[0], in[1]); }, {{3, 4}, {4}}},
    {"softmax", [](auto& in) { return softmax(in[0]); }, {{5}}},
    {"cross_entropy", [](auto& in) { return loss_of(in[0]); }, {{3, 4}}},
    {"silu of 20 x", [](auto& in) { return silu(scale(in[0], 20)); }, {{6}}},
    {"10^6 x, and an input without use", [](auto& in) { return scale(in[0], 1e6); }, {{4}, {2}}}};

const std::vector<GradientProbe> wrong_gradients = {
    {"softmax, twice too large", [](auto& in) { return softmax(times_all(in[0], 2)); }, {{5}}},
    {"linear, the last element of db 1 % too large",
     [](auto& in) { return linear(in[0], in[1], times_last(in[2], 1.01)); },
     {{2, 3, 5}, {4, 5}, {4}},
     {{2, 3}}},
    {"linear, dW transposed",
     [](auto& in) { return linear(in[0], transposed_gradient(in[1])); },
     {{2, 3}, {3, 3}}},
    {"rms_norm, dx of a constant r",
     [](auto& in) { return norm_by_constant(in[0], in[1]); },
     {{4}, {4}}},
    {"cross_entropy, the last element of dz with the wrong sign",
     [](auto& in) { return loss_of(times_last(in[0], -1)); },
     {{3, 4}},
     {{0, 11}}},
    {"x times x, one use forgotten", [](auto& in) { return mul(in[0], in[0].detach()); }, {{4}}},
    {"a gradient that is not a number",
     [](auto& in) { return times_last(in[0], std::numeric_limits<double>::quiet_NaN()); },
     {{4}},
     {{0, 3}}},
    {"an input that gets no gradient",
     [](auto& in) { return add(in[0].detach(), in[1]); },
     {{2}, {2}},
     {{0, 0}, {0, 1}}}};

}  // namespace ringside::exercises
