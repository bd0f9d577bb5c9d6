// What the judge calls: makes the student's data parallelism for a module.
#pragma once

#include "exercises/judge/ddp/data_parallel_method.hpp"

namespace ringside::exercises {

inline Student<MakeDataParallel> student_overlap;

}  // namespace ringside::exercises
