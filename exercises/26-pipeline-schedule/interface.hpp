// What the judge calls: the actions of one rank.
#pragma once

#include <vector>

#include "exercises/judge/student.hpp"
#include "parallel/pipeline/schedule.hpp"

namespace ringside::exercises {

using MakeActions = std::vector<pipeline_parallel::Action>(int ranks, int micro_batches, int rank);

inline Student<MakeActions> student_gpipe, student_one_f_one_b;

}  // namespace ringside::exercises
