// What the judge calls: the student's program, with an emulated device.
#pragma once

#include "exercises/judge/gpu/graphs.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

inline Student<void(gpu::TrainingDevice& device, int layers, int steps)> student_train;

}  // namespace ringside::exercises
