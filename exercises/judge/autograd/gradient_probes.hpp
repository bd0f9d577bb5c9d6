// Functions with a right and with a wrong backward, to be told apart by a check of gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tensor/tensor.hpp"

namespace ringside::exercises {

struct GradientProbe {
  std::string name;
  std::function<autograd::Tensor(const std::vector<autograd::Tensor>&)> function;
  std::vector<autograd::Shape> inputs;
  // (input, element) of all that is wrong, where it is only these; else empty.
  std::vector<std::pair<std::size_t, std::int64_t>> faults{};
};

extern const std::vector<GradientProbe> right_gradients, wrong_gradients;

}  // namespace ringside::exercises
