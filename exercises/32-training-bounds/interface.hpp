// What the judge calls: the times of three ways to train, and three bounds.
#pragma once

#include "exercises/32-training-bounds/block.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

using StepOf = Student<bounds::Step(bounds::Block block, bounds::Machine machine, double batch,
                                    double devices)>;

inline StepOf student_data_parallel, student_fully_sharded, student_tensor_parallel;
inline Student<double(bounds::Machine machine)> student_least_tokens;
inline Student<double(bounds::Block block, bounds::Machine machine)> student_most_devices;
inline Student<bounds::Split(bounds::Block block, bounds::Machine machine, bool overlapped)>
    student_best_split;

}  // namespace ringside::exercises
