// check_gradients: compares the gradients of the engine with central finite differences, in fp64.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"

namespace ringside::autograd {

// Standard normal numbers, the same for each call with the same name.
inline Tensor random_tensor(Shape shape, const std::string& name, DType dtype = DType::fp64) {
  const Tensor tensor = Tensor::empty(std::move(shape), dtype);
  fill_normal(tensor, 0, 1, {1234, name});
  return tensor;
}

inline std::vector<double> to_vector(const Tensor& tensor) {
  const Tensor dense = tensor.detach().contiguous();
  std::vector<double> values;
  if (dense.dtype() == DType::fp64)
    values.assign(dense.values<double>().begin(), dense.values<double>().end());
  else
    values.assign(dense.values<float>().begin(), dense.values<float>().end());
  return values;
}

inline double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = to_vector(a), y = to_vector(b);
  REQUIRE(a.shape() == b.shape());
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
  return largest;
}

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

// sum of weight * y, the scalar whose derivatives are compared. The weights are random, so that
// errors do not cancel.
inline double weighted_sum(const Tensor& y, const std::vector<double>& weights) {
  const std::vector<double> values = to_vector(y);
  double total = 0;
  for (std::size_t i = 0; i < values.size(); ++i) total += weights[i] * values[i];
  return total;
}

// Checks d(sum of random weights * function(inputs)) / d(input) for every element of every input.
// Inputs: fp64, contiguous leaves.
inline void check_gradients(const std::string& what, const Function& function,
                            std::vector<Tensor> inputs, double tolerance = 1e-6) {
  CAPTURE(what);
  for (Tensor& input : inputs) input.set_requires_grad(true).set_grad({});
  const Tensor y = function(inputs);
  const Tensor weights = random_tensor(y.shape(), "weights of the loss");
  const std::vector<double> weight_values = to_vector(weights);
  backward(y, weights);

  const NoGrad no_history;
  for (std::size_t n = 0; n < inputs.size(); ++n) {
    REQUIRE(inputs[n].grad().defined());
    const std::vector<double> from_engine = to_vector(inputs[n].grad());
    const std::span<double> values = inputs[n].values<double>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double before = values[i], step = 1e-5;
      values[i] = before + step;
      const double above = weighted_sum(function(inputs), weight_values);
      values[i] = before - step;
      const double below = weighted_sum(function(inputs), weight_values);
      values[i] = before;
      const double expected = (above - below) / (2 * step);
      if (std::abs(from_engine[i] - expected) > tolerance * (1 + std::abs(expected)))
        FAIL_CHECK("input " << n << " element " << i << ": finite differences give " << expected
                            << ", backward gives " << from_engine[i]);
    }
  }
}

}  // namespace ringside::autograd
