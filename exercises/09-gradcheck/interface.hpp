// What the judge calls: the check of gradients. It returns (input, element) of every fault.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "autograd/tensor/tensor.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

using CheckedFunction = std::function<autograd::Tensor(const std::vector<autograd::Tensor>&)>;
using FaultyElements = std::vector<std::pair<std::size_t, std::int64_t>>;

inline Student<FaultyElements(const CheckedFunction&, const std::vector<autograd::Tensor>&)>
    student_gradcheck;

}  // namespace ringside::exercises
