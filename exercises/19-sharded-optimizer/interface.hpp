// What the judge calls: makes the student's sharded optimizer.
#pragma once

#include "exercises/judge/student.hpp"
#include "zero/sharded_optimizer.hpp"

namespace ringside::exercises {

inline Student<std::unique_ptr<zero::ShardedOptimizer>(std::vector<autograd::ParameterGroup>,
                                                       collectives::ProcessGroup&,
                                                       zero::ShardedOptimizer::Make)>
    student_optimizer;

}  // namespace ringside::exercises
