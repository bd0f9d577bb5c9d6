// What the judge calls: the buckets of a list of parameters.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tensor/tensor.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

using BucketPlan = std::vector<std::vector<std::pair<std::string, std::int64_t>>>;  // name, begin

inline Student<BucketPlan(const std::vector<autograd::NamedTensor>&, std::size_t limit,
                          std::size_t first_limit, const std::vector<std::string>& alone)>
    student_plan;

}  // namespace ringside::exercises
