// What the judge calls: makes the student's sharded optimizer.
#pragma once

#include "exercises/judge/student.hpp"
#include "zero/partitioned_optimizer.hpp"

namespace ringside::exercises {

inline Student<std::unique_ptr<zero::PartitionedOptimizer>(std::vector<autograd::ParameterGroup>,
                                                           collectives::ProcessGroup&,
                                                           zero::PartitionedOptimizer::Make)>
    student_optimizer;

}  // namespace ringside::exercises
