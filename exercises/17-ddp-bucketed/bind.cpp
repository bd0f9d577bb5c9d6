// Compiled with the student's files each time that one of them changes.
#include "bucket_queue.cpp"
#include "bucketed.cpp"
#include "exercises/17-ddp-bucketed/interface.hpp"
#include "gradient_buckets.cpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound =
    student_bucketed.bind(make_data_parallel<student::ddp::Bucketed, double>);
}
}  // namespace ringside::exercises
