// What the judge calls: the student's model of buckets, made of o seconds and w bytes per second.
#pragma once

#include "exercises/judge/student.hpp"

namespace ringside::exercises {

inline Student<double(double overhead, double bandwidth, double total_bytes, double buckets)>
    student_exposed_seconds;
inline Student<double(double overhead, double bandwidth, double total_bytes)>
    student_best_bucket_bytes;

}  // namespace ringside::exercises
