// What the judges of gradients share: random tensors, tensors as JSON, and where two of them
// differ.
#pragma once

#include <string>
#include <vector>

#include "autograd/tensor/tensor.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {

// Standard normal numbers in fp64 from the seed of the case, the same at every call.
autograd::Tensor random_tensor(autograd::Shape shape, std::uint64_t seed, std::uint64_t which);

// A number, or a text where JSON has none for it: "nan", "inf".
Json json_of(double number);

// {"shape": [2, 3], "values": [...]}; null for an undefined tensor.
Json json_of(const autograd::Tensor& tensor);

// The number of an element that json_of() wrote.
double number_of(const Json& value);

// Where `seen` differs from `expected` by more than 1e-9 (1 + |expected|): "dW[1, 2] is 0.5,
// expected -1.2"; "dW has shape [3, 2], expected [2, 3]"; "dW is missing". "" if they agree.
std::string difference(const std::string& name, const Json& seen, const Json& expected);

// The difference of the first of `names` that differs: its entries in both objects. "" if none
// does.
std::string first_difference(const std::vector<const char*>& names, const Json& seen,
                             const Json& expected);

// The bits of a contiguous tensor as one number, in hexadecimal.
std::string fingerprint(const autograd::Tensor& tensor);

}  // namespace ringside::exercises
