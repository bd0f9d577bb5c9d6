// What the judge calls: two ops whose rows the student writes.
#pragma once

#include <cstdint>

#include "autograd/tensor/tensor.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

inline Student<autograd::Tensor(const autograd::Tensor& x, const autograd::Tensor& weight,
                                double eps)>
    student_rms_norm;
inline Student<autograd::Tensor(const autograd::Tensor& logits, const autograd::Tensor& targets,
                                std::int32_t ignore_index)>
    student_cross_entropy;

}  // namespace ringside::exercises
