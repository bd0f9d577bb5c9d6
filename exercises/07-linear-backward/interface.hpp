// What the judge calls: x W^T + b, recorded with the student's backward.
#pragma once

#include "autograd/tensor/tensor.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

inline Student<autograd::Tensor(const autograd::Tensor& x, const autograd::Tensor& weight,
                                const autograd::Tensor& bias)>
    student_linear;

}  // namespace ringside::exercises
