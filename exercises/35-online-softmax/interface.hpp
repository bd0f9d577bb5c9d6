// What the judge calls: each thread of the student's kernels.
#pragma once

#include "exercises/35-online-softmax/given.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

inline Student<gpu::Softmax(gpu::EmulatedThread& gpu, const gpu::Softmax& a, const gpu::Softmax& b)>
    student_merged;
inline Student<gpu::Softmax(gpu::EmulatedThread& gpu, gpu::Softmax own)> student_block_softmax;
inline Student<void(gpu::EmulatedThread& gpu, const gpu::Global<float>& losses,
                    const gpu::Global<float>& z, const gpu::Global<int>& targets, std::int64_t rows,
                    std::int64_t n)>
    student_cross_entropy;

}  // namespace ringside::exercises
