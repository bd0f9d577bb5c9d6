// What the judge calls: the student's program, with an emulated device.
#pragma once

#include "exercises/judge/gpu/streams.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

inline Student<void(gpu::Device& device, int chunks, int slots)> student_process;

}  // namespace ringside::exercises
