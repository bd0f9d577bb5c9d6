// Small networks, data and optimizers for the tests of parallel methods. All nets but DeepNet and
// BiasNet map [rows, 10] to [rows, 5].
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/optim/adamw.hpp"
#include "autograd/optim/sgd.hpp"
#include "base/random.hpp"

namespace ringside::tests {

using namespace autograd;

class Net : public Module {
 public:
  virtual Tensor forward(const Tensor& x) const = 0;
};

// Two layers, 10 - 20 - 5.
class ToyNet final : public Net {
 public:
  ToyNet(std::uint64_t seed, DType dtype)
      : fc1(10, 20, true, {seed, "fc1"}, dtype), fc2(20, 5, true, {seed, "fc2"}, dtype) {
    register_module("fc1", fc1), register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& x) const override { return fc2.forward(relu(fc1.forward(x))); }
  Linear fc1, fc2;
};

// Uses one weight in two layers.
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

// Has a frozen bias, a layer that forward does not use, and a buffer.
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

// Uses the layer `extra` in every second forward.
class SometimesNet final : public Net {
 public:
  SometimesNet(std::uint64_t seed, DType dtype)
      : fc1(10, 20, true, {seed, "fc1"}, dtype),
        extra(20, 20, true, {seed, "extra"}, dtype),
        fc2(20, 5, true, {seed, "fc2"}, dtype) {
    register_module("fc1", fc1), register_module("extra", extra), register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor hidden = relu(fc1.forward(x));
    return fc2.forward(calls_++ % 2 == 0 ? hidden : relu(extra.forward(hidden)));
  }
  Linear fc1, extra, fc2;

 private:
  mutable int calls_ = 0;
};

// Layers of 8 x 8 with a bias: 288 bytes of fp32 parameters in each.
class DeepNet final : public Net {
 public:
  static constexpr std::int64_t width = 8;
  static constexpr double layer_mb = 288e-6;

  explicit DeepNet(int depth = 3) {
    for (int i = 0; i < depth; ++i) {
      const std::string name = std::to_string(i);
      layers.push_back(std::make_unique<Linear>(width, width, true, Init{1, name}));
      register_module(name, *layers.back());
    }
  }
  Tensor forward(const Tensor& input) const override {
    Tensor x = input;
    for (const auto& layer : layers) x = relu(layer->forward(x));
    return x;
  }
  static Tensor ones(std::int64_t rows) { return Tensor::full({rows, width}, 1.0); }

  std::vector<std::unique_ptr<Linear>> layers;
};

// Adds three biases, a, b and c, of one shape. Only those that are switched on get a gradient.
class BiasNet final : public Net {
 public:
  explicit BiasNet(std::array<bool, 3> on) : on_(on) {
    register_module("a", add_[0]), register_module("b", add_[1]), register_module("c", add_[2]);
  }
  Tensor forward(const Tensor& input) const override {
    Tensor x = input;
    for (std::size_t i = 0; i < add_.size(); ++i) x = add_[i].forward(x, on_[i]);
    return x;
  }

 private:
  struct Add : Module {
    Tensor bias = Tensor::zeros({5});
    Add() { register_parameter("bias", bias); }
    Tensor forward(const Tensor& x, bool on) const {
      return with_hooks([&] { return on ? x + bias : x + bias.detach(); });
    }
  };
  std::array<Add, 3> add_;
  std::array<bool, 3> on_;
};

using MakeNet = std::function<std::unique_ptr<Net>(std::uint64_t seed, DType dtype)>;
template <class N>
std::unique_ptr<Net> make_net(std::uint64_t seed, DType dtype) {
  return std::make_unique<N>(seed, dtype);
}

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<ParameterGroup>)>;

// The default, without momentum: Adam divides by the size of the gradient, so it would hide a wrong
// scale.
inline std::unique_ptr<Optimizer> make_sgd(std::vector<ParameterGroup> groups) {
  return std::make_unique<SGD>(std::move(groups));
}
inline std::unique_ptr<Optimizer> make_momentum(std::vector<ParameterGroup> groups) {
  return std::make_unique<SGD>(std::move(groups), SgdOptions{.momentum = 0.9});
}
inline std::unique_ptr<Optimizer> make_adamw(std::vector<ParameterGroup> groups) {
  return std::make_unique<AdamW>(std::move(groups));
}

// Rows first .. first + rows of a data set. The numbers are normal, and depend only on the row and
// column.
template <class T>
Tensor rows_of(std::uint64_t stream, std::int64_t first, std::int64_t rows, std::int64_t columns) {
  std::vector<T> values(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<T>(random_normal(11, stream, static_cast<std::uint64_t>(first * columns) + i));
  return Tensor::from(values, {rows, columns});
}

// The loss of a net that maps 10 to 5 columns, over those rows.
template <class T>
Tensor loss_of_rows(const Net& net, std::int64_t first, std::int64_t rows) {
  return mse_loss(net.forward(rows_of<T>(0, first, rows, 10)), rows_of<T>(1, first, rows, 5));
}

}  // namespace ringside::tests
