// What the judges of tensor parallel share: tensors of random numbers, their parts, and the first
// number that is wrong.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "autograd/tensor/tensor.hpp"

namespace ringside::exercises {

// Normal random numbers, the same on all ranks.
autograd::Tensor numbers(autograd::Shape shape, std::uint64_t seed, std::string_view name,
                         autograd::DType dtype = autograd::DType::fp64);

// The block of `rank`, a copy, as ProcessGroup::block_begin() divides. Undefined stays undefined.
autograd::Tensor part(const autograd::Tensor& whole, std::int64_t dimension, int ranks, int rank);

// All elements of a tensor of fp64 or fp32 in order; none of an undefined one.
std::vector<double> values(const autograd::Tensor& tensor);

// "dx has 0.5 at [3], expected 1.25: that is what this rank computes alone". "" if `seen` is right
// to `tolerance` of the largest. `alone` are the numbers of a rank that hears nothing from others.
std::string fault_of(std::string_view what, const std::vector<double>& seen,
                     const std::vector<double>& expected, const std::vector<double>& alone,
                     int ranks, double tolerance = 1e-12);

}  // namespace ringside::exercises
