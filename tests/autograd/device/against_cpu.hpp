// check_against_cpu: compares an op on the device under test, forward and backward, with the CPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/engine/engine.hpp"
#include "autograd/kernels/copy.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "tests/autograd/device/device_under_test.hpp"

namespace ringside::tests {

using autograd::Device;
using autograd::DType;
using autograd::Shape;
using autograd::Tensor;

inline Tensor drawn(Shape shape, const std::string& name, DType dtype = DType::fp32) {
  const Tensor tensor = Tensor::empty(std::move(shape), dtype);
  autograd::fill_normal(tensor, 0, 1, {1234, name});
  return tensor;
}

// The elements of a tensor of any device and dtype, in fp32.
inline std::vector<float> numbers_of(const Tensor& tensor) {
  const autograd::NoGrad no_history;
  const Tensor home = autograd::to_compute_dtype(tensor.detach().to(Device::cpu)).contiguous();
  return {home.values<float>().begin(), home.values<float>().end()};
}

// The largest difference relative to the largest element; infinity if an element is not finite.
inline double apart(const Tensor& seen, const Tensor& expected) {
  REQUIRE(seen.shape() == expected.shape());
  const std::vector<float> a = numbers_of(seen), b = numbers_of(expected);
  double largest = 1e-20, difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, static_cast<double>(std::abs(b[i])));
    difference = std::isfinite(a[i])
                     ? std::max(difference, static_cast<double>(std::abs(a[i] - b[i])))
                     : std::numeric_limits<double>::infinity();
  }
  return difference / largest;
}

// The norm of the difference relative to the norm. For results of many roundings to bf16, where the
// error of a single element is random.
inline double apart_in_norm(const Tensor& seen, const Tensor& expected) {
  REQUIRE(seen.shape() == expected.shape());
  const std::vector<float> a = numbers_of(seen), b = numbers_of(expected);
  double difference = 0, all = 1e-30;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    all += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::isfinite(difference) ? std::sqrt(difference / all)
                                   : std::numeric_limits<double>::infinity();
}

inline double tolerance_of(DType dtype) {
  return dtype == DType::bf16 ? 2e-2 : 1e-4;
}

using Function = std::function<Tensor(const std::vector<Tensor>& inputs)>;

struct Outcome {
  Tensor y;
  std::vector<Tensor> gradients;
};

inline Outcome run_on(Device device, const Function& function, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> there;
  for (const Tensor& input : inputs)
    there.push_back(input.device() == device ? input.clone() : input.to(device));
  for (Tensor& input : there)
    if (input.dtype() != DType::int32) input.set_requires_grad(true);
  Outcome outcome{function(there), {}};
  CHECK(outcome.y.device() == device);
  if (outcome.y.requires_grad())
    autograd::backward(outcome.y,
                       drawn(outcome.y.shape(), "gradient", outcome.y.dtype()).to(device));
  for (const Tensor& input : there) outcome.gradients.push_back(input.grad());
  return outcome;
}

// Checks that the output and all gradients of `function` on the device under test equal the CPU's.
// The inputs are on the CPU.
inline void check_against_cpu(const std::string& what, const Function& function,
                              const std::vector<Tensor>& inputs) {
  CAPTURE(what);
  const double tolerance = tolerance_of(inputs.front().dtype());
  const Outcome seen = run_on(device_under_test(), function, inputs),
                expected = run_on(Device::cpu, function, inputs);
  CHECK(seen.y.dtype() == expected.y.dtype());
  CHECK(seen.y.strides() == expected.y.strides());
  CHECK(apart(seen.y, expected.y) <= tolerance);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CAPTURE(i);
    REQUIRE(seen.gradients[i].defined() == expected.gradients[i].defined());
    if (!seen.gradients[i].defined()) continue;
    CHECK(seen.gradients[i].dtype() == expected.gradients[i].dtype());
    CHECK(seen.gradients[i].device() == device_under_test());
    CHECK(apart(seen.gradients[i], expected.gradients[i]) <= tolerance);
  }
}

}  // namespace ringside::tests
