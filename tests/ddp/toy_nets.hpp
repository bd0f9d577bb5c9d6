// The toy models of the course, and how to train one and compare what came of it, number by number.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/optim/sgd.hpp"
#include "base/random.hpp"

namespace ringside::tests {

using namespace autograd;

class Net : public Module {
 public:
  virtual Tensor forward(const Tensor& x) const = 0;
};

// The first toy of the course: 10 - 20 - 5.
class ToyNet final : public Net {
 public:
  ToyNet(std::uint64_t seed, DType dtype)
      : fc1(10, 20, true, {seed, "fc1"}, dtype), fc2(20, 5, true, {seed, "fc2"}, dtype) {
    register_module("fc1", fc1), register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& x) const override { return fc2.forward(relu(fc1.forward(x))); }
  Linear fc1, fc2;
};

// The second: the same weight in two places.
class TiedNet final : public Net {
 public:
  TiedNet(std::uint64_t seed, DType dtype)
      : first(10, 10, true, {seed, "first"}, dtype),
        second(10, 10, true, {seed, "second"}, dtype),
        out(10, 5, false, {seed, "out"}, dtype) {
    second.weight = first.weight;
    register_module("first", first), register_module("second", second), register_module("out", out);
  }
  Tensor forward(const Tensor& x) const override {
    return out.forward(relu(second.forward(relu(first.forward(x)))));
  }
  Linear first, second, out;
};

// The third: a bias that is frozen, a layer that forward does not use, and a buffer.
class FrozenAndUnusedNet final : public Net {
 public:
  FrozenAndUnusedNet(std::uint64_t seed, DType dtype)
      : fc1(10, 20, true, {seed, "fc1"}, dtype),
        unused(4, 4, true, {seed, "unused"}, dtype),
        fc2(20, 5, true, {seed, "fc2"}, dtype),
        shift(Tensor::full({5}, static_cast<double>(seed), dtype)) {
    register_module("fc1", fc1), register_module("unused", unused), register_module("fc2", fc2),
        register_buffer("shift", shift);
    fc1.bias.set_requires_grad(false);
  }
  Tensor forward(const Tensor& x) const override {
    return fc2.forward(relu(fc1.forward(x))) + shift;
  }
  Linear fc1, unused, fc2;
  Tensor shift;
};

using MakeNet = std::function<std::unique_ptr<Net>(std::uint64_t seed, DType dtype)>;

// Rows first .. first+rows of the data set: normal numbers that depend on the row alone.
template <class T>
Tensor rows_of(std::uint64_t stream, std::int64_t first, std::int64_t rows, std::int64_t columns) {
  std::vector<T> values(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<T>(random_normal(11, stream, static_cast<std::uint64_t>(first * columns) + i));
  return Tensor::from(values, {rows, columns});
}

// Everything that can be told apart after a step: parameters, and gradients where there are any.
template <class T>
std::vector<NamedTensor> state_of(const Module& net) {
  std::vector<NamedTensor> state;
  for (const auto& [name, tensor] : net.named_parameters()) {
    state.push_back({name, tensor.detach().clone()});
    if (tensor.grad().defined()) state.push_back({"gradient of " + name, tensor.grad().clone()});
  }
  for (const auto& [name, tensor] : net.named_buffers()) state.push_back({name, tensor.clone()});
  return state;
}

inline constexpr int epochs = 10;
using History = std::vector<std::vector<NamedTensor>>;  // [epoch]

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<ParameterGroup>)>;

// SGD without momentum: an optimizer that divides by the gradient's size, as Adam does, would hide
// a wrong scale.
inline std::unique_ptr<Optimizer> make_sgd(std::vector<ParameterGroup> groups) {
  return std::make_unique<SGD>(std::move(groups));
}

// Trains on rows first .. first+rows; `finish` is what the form of data parallelism does after
// backward.
template <class T>
History train(Net& net, std::int64_t first, std::int64_t rows, const std::function<void()>& finish,
              const MakeOptimizer& make = make_sgd) {
  const Tensor x = rows_of<T>(0, first, rows, 10), y = rows_of<T>(1, first, rows, 5);
  std::vector<NamedTensor> trained;
  for (const auto& parameter : net.named_parameters())
    if (parameter.tensor.requires_grad()) trained.push_back(parameter);
  const auto optimizer = make({{trained, 0.01, 0}});
  History history;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    optimizer->zero_grad();
    backward(mse_loss(net.forward(x), y));
    finish();
    optimizer->step();
    history.push_back(state_of<T>(net));
  }
  return history;
}

template <class T>
void must_agree(const History& seen, const History& wanted, double tolerance) {
  for (int epoch = 0; epoch < epochs; ++epoch) {
    require(seen[epoch].size() == wanted[epoch].size(), "epoch {}: {} tensors instead of {}", epoch,
            seen[epoch].size(), wanted[epoch].size());
    for (std::size_t i = 0; i < seen[epoch].size(); ++i) {
      const auto& [name, tensor] = seen[epoch][i];
      const auto &a = tensor.template values<T>(), b = wanted[epoch][i].tensor.template values<T>();
      require(name == wanted[epoch][i].name, "epoch {}: {} instead of {}", epoch, name,
              wanted[epoch][i].name);
      for (std::size_t k = 0; k < a.size(); ++k)
        require(std::abs(a[k] - b[k]) <= tolerance, "epoch {}: {}[{}] is {} instead of {}", epoch,
                name, k, a[k], b[k]);
    }
  }
}

}  // namespace ringside::tests
