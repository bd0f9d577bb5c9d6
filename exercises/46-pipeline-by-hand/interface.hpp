// What the judge calls: one step of a pipeline whose stages are a layer each.
#pragma once

#include <vector>

#include "autograd/tensor/tensor.hpp"
#include "collectives/process_group.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

inline Student<void(const autograd::Tensor& weight, const std::vector<autograd::Tensor>& x,
                    const std::vector<autograd::Tensor>& targets, collectives::ProcessGroup& group)>
    student_training_step;

}  // namespace ringside::exercises
