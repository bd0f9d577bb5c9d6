// What the judge calls: each thread of the student's kernel.
#pragma once

#include "exercises/judge/gpu/gpu.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

inline Student<void(gpu::EmulatedThread& gpu, const gpu::Global<float>& c,
                    const gpu::Global<float>& a, const gpu::Global<float>& b, std::int64_t m,
                    std::int64_t n, std::int64_t k)>
    student_product;

}  // namespace ringside::exercises
