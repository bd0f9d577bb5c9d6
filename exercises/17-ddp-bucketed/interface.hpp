// What the judge calls: makes the student's data parallelism, with buckets of `bucket_mb`.
#pragma once

#include "exercises/judge/ddp/data_parallel_method.hpp"

namespace ringside::exercises {

inline Student<std::unique_ptr<DataParallel>(const autograd::Module&, collectives::ProcessGroup&,
                                             double bucket_mb)>
    student_bucketed;

}  // namespace ringside::exercises
