// What the judge calls: makes the student's stage 2, with buckets of `bucket_mb`.
#pragma once

#include "exercises/judge/zero/sharded_method.hpp"

namespace ringside::exercises {

inline Student<MakeShardedMethod> student_stage2;

}  // namespace ringside::exercises
