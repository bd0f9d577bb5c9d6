// What the judge calls: causal_attention with the student's backward.
#pragma once

#include "autograd/tensor/tensor.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

inline Student<autograd::Tensor(const autograd::Tensor& q, const autograd::Tensor& k,
                                const autograd::Tensor& v)>
    student_attention;

}  // namespace ringside::exercises
