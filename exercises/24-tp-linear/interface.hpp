// What the judge calls: the two linear layers, and how a tensor is divided.
#pragma once

#include <string_view>

#include "autograd/tensor/tensor.hpp"
#include "collectives/process_group.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

using LinearLayer = autograd::Tensor(const autograd::Tensor& x, const autograd::Tensor& weight,
                                     const autograd::Tensor& bias, collectives::ProcessGroup& group,
                                     std::string_view label);

inline Student<autograd::Tensor(const autograd::Tensor& whole, std::int64_t dimension,
                                const collectives::ProcessGroup& group)>
    student_part_of;
inline Student<LinearLayer> student_column_linear, student_row_linear;

}  // namespace ringside::exercises
