// What the tests of ops share: random tensors, and check_gradients().
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/engine/engine.hpp"
#include "autograd/engine/gradcheck.hpp"
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

// A failed check for each fault of a gradient (autograd/engine/gradcheck.hpp).
inline void check_gradients(const std::string& what, const Function& function,
                            const std::vector<Tensor>& inputs, double tolerance = 1e-6) {
  CAPTURE(what);
  for (const auto& [input, element, by_differences, by_backward] :
       gradient_faults(function, inputs, tolerance))
    FAIL_CHECK("input " << input << " element " << element << ": finite differences give "
                        << by_differences << ", backward gives " << by_backward);
  for (const Tensor& input : inputs) REQUIRE(input.grad().defined());
}

}  // namespace ringside::autograd
