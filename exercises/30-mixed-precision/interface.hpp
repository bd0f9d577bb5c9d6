// What the judge calls: a sum, a scale, a step, and the type of a result.
#pragma once

#include <span>

#include "exercises/30-mixed-precision/precision.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

using precision::LossScale;
using precision::Operation;
using precision::Type;

inline Student<float(std::span<const float> values, Type terms, Type sum_in)> student_accumulated;
inline Student<float(std::span<const float> gradients)> student_largest_scale;
inline Student<bool(std::span<float> gradients, LossScale& state)> student_unscaled;
inline Student<Type(Operation operation, std::span<const Type> inputs, Type low)>
    student_result_type;

}  // namespace ringside::exercises
