// What the judge calls: each thread of the student's kernels.
#pragma once

#include "exercises/judge/gpu/gpu.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

inline Student<float(gpu::EmulatedThread&gpu, float x)> student_warp_sum, student_block_sum;
inline Student<void(gpu::EmulatedThread& gpu, const gpu::Global<float>& sums,
                    const gpu::Global<float>& x, std::int64_t rows, std::int64_t n)>
    student_row_sums;

}  // namespace ringside::exercises
