// Judges a check of gradients: it must accept functions with a right backward, and refuse others.
#include <cmath>
#include <limits>

#include <fmt/ranges.h>

#include "autograd/engine/node.hpp"
#include "autograd/ops/ops.hpp"
#include "exercises/09-gradcheck/interface.hpp"
#include "exercises/judge/tensors.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

struct Probe {
  std::string name;
  CheckedFunction function;
  std::vector<Shape> inputs;
  FaultyElements faults{};  // where the backward is wrong, if the case "names" asks for it
};

// ---- Functions with a wrong backward ----

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

const std::vector<Probe> right = {
    {"linear", [](auto& in) { return linear(in[0], in[1], in[2]); }, {{2, 3, 5}, {4, 5}, {4}}},
    {"a transposed view", [](auto& in) { return in[0].transpose(0, 1); }, {{2, 3}}},
    {"rms_norm", [](auto& in) { return rms_norm(in[0], in[1]); }, {{3, 4}, {4}}},
    {"softmax", [](auto& in) { return softmax(in[0]); }, {{5}}},
    {"cross_entropy", [](auto& in) { return loss_of(in[0]); }, {{3, 4}}},
    {"silu of 20 x", [](auto& in) { return silu(scale(in[0], 20)); }, {{6}}},
    {"10^6 x, and an input without use", [](auto& in) { return scale(in[0], 1e6); }, {{4}, {2}}}};

const std::vector<Probe> wrong = {
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

std::vector<Tensor> inputs_of(const Probe& probe, std::uint64_t seed) {
  std::vector<Tensor> inputs;
  for (const Shape& shape : probe.inputs)
    inputs.push_back(random_tensor(shape, seed, inputs.size()));
  return inputs;
}

// The faults found in each probe, and the bits of its inputs afterwards.
template <const std::vector<Probe>& probes>
Json collect(World& world) {
  Json results = Json::array();
  for (const Probe& probe : probes) {
    world.doing("the check of " + probe.name);
    std::vector<Tensor> inputs = inputs_of(probe, world.seed());
    // A gradient of an earlier pass must not count.
    for (Tensor& input : inputs)
      input.set_requires_grad(true).set_grad(Tensor::full(input.shape(), 1, DType::fp64));
    Json faults = student_gradcheck(probe.function, inputs), bits = Json::array();
    for (const Tensor& input : inputs) bits.push_back(fingerprint(input));
    results.push_back({{"faults", std::move(faults)}, {"bits", std::move(bits)}});
  }
  return results;
}

Verdict judge_accepts(const Run& run) {
  for (std::size_t k = 0; k < right.size(); ++k) {
    const FaultyElements faults = run.ranks[0].at(k).at("faults");
    if (!faults.empty())
      return {
          {fmt::format("{}: refused, but its backward is right (input {}, element {}, and {} "
                       "more)",
                       right[k].name, faults[0].first, faults[0].second, faults.size() - 1)}};
  }
  return {};
}

Verdict judge_refuses(const Run& run) {
  for (std::size_t k = 0; k < wrong.size(); ++k)
    if (run.ranks[0].at(k).at("faults").empty())
      return {{wrong[k].name + ": accepted, but its backward is wrong"}};
  return {};
}

Verdict judge_names(const Run& run) {
  for (std::size_t k = 0; k < wrong.size(); ++k) {
    const FaultyElements faults = run.ranks[0].at(k).at("faults");
    if (!wrong[k].faults.empty() && faults != wrong[k].faults)
      return {{fmt::format("{}: named the faults {} (input, element), expected {}", wrong[k].name,
                           faults, wrong[k].faults)}};
  }
  return {};
}

Verdict judge_restores(const Run& run) {
  for (std::size_t k = 0; k < right.size(); ++k) {
    const std::vector<Tensor> inputs = inputs_of(right[k], run.seed);
    for (std::size_t n = 0; n < inputs.size(); ++n)
      if (run.ranks[0].at(k).at("bits").at(n) != fingerprint(inputs[n]))
        return {{fmt::format("{}: after the check input {} has other bits than before",
                             right[k].name, n)}};
  }
  return {};
}

const Judge judge("09-gradcheck", {{"accepts", collect<right>, judge_accepts},
                                   {"refuses", collect<wrong>, judge_refuses},
                                   {"names", collect<wrong>, judge_names},
                                   {"restores", collect<right>, judge_restores}});

}  // namespace
}  // namespace ringside::exercises
