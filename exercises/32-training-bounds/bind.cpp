// Compiled with the student's file each time that it changes.
#include "exercises/32-training-bounds/interface.hpp"
#include "training_bounds.hpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound =
    student_data_parallel.bind(student::bounds::data_parallel) &&
    student_fully_sharded.bind(student::bounds::fully_sharded) &&
    student_tensor_parallel.bind(student::bounds::tensor_parallel) &&
    student_least_tokens.bind(student::bounds::least_tokens) &&
    student_most_devices.bind(student::bounds::most_devices) &&
    student_best_split.bind(student::bounds::best_split);
}
}  // namespace ringside::exercises
