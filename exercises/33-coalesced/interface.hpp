// What the judge calls: each thread of the student's kernels.
#pragma once

#include "exercises/judge/gpu/gpu.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

inline Student<void(gpu::EmulatedThread& gpu, const gpu::Global<float>& to,
                    const gpu::Global<float>& from)>
    student_copy;
inline Student<void(gpu::EmulatedThread& gpu, const gpu::Global<float>& to,
                    const gpu::Global<float>& from, std::int64_t rows, std::int64_t columns)>
    student_transpose;

}  // namespace ringside::exercises
