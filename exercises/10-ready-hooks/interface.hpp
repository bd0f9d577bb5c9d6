// What the judge calls: the student's backward, and the student's way to add to a leaf's gradient.
#pragma once

#include "autograd/tensor/tensor.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

inline Student<void(const autograd::Tensor& loss, const autograd::Tensor& seed)> student_backward;
inline Student<void(const autograd::Tensor& leaf, const autograd::Tensor& grad)>
    student_accumulate_gradient;

}  // namespace ringside::exercises
