// Gradcheck: compares the gradients of backward() with central finite differences.
//
//     const Function product = [](const std::vector<Tensor>& in) { return mul(in[0], in[1]); };
//     for (const GradientFault& fault : gradient_faults(product, {a, b})) ...
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// Tensors, each a leaf, to a tensor of any shape. Called again, it returns the same numbers.
using Function = std::function<Tensor(const std::vector<Tensor>&)>;

// A wrong element of a gradient, d(loss) / d(inputs[input], element).
struct GradientFault {
  std::size_t input = 0;
  std::int64_t element = 0;
  double by_differences = 0, by_backward = 0;
};

// Every element of every input in which the two gradients of one loss differ by more than
// tolerance (1 + |by_differences|), or in which one of them is not a number. The loss is a sum of
// the elements of function(inputs), each with a weight of its own, so that errors do not cancel.
//
// Inputs: contiguous leaves of fp64 on the CPU. Gradients that they have before do not count;
// afterwards they have those of backward(). Their values change while the check runs, and are the
// same bits afterwards. An input that received no gradient has the gradient 0.
std::vector<GradientFault> gradient_faults(const Function& function, std::vector<Tensor> inputs,
                                           double tolerance = 1e-6);

}  // namespace ringside::autograd
