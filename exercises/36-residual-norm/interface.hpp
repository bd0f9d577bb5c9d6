// What the judge calls: each thread of the student's kernels.
#pragma once

#include "exercises/judge/gpu/gpu.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

using Bf16s = const gpu::Global<gpu::Bf16>&;
using Floats = const gpu::Global<float>&;

inline Student<void(gpu::EmulatedThread& gpu, Bf16s y, Bf16s h, Floats rstds, Bf16s x, Bf16s r,
                    Floats w, std::int64_t rows, std::int64_t n, float epsilon)>
    student_residual_norm;
inline Student<void(gpu::EmulatedThread& gpu, Bf16s dh, Floats parts, Bf16s dy, Bf16s g, Bf16s h,
                    Floats rstds, Floats w, std::int64_t rows, std::int64_t n)>
    student_residual_norm_backward;

}  // namespace ringside::exercises
