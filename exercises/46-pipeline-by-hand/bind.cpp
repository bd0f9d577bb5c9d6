// Compiled with the student's file each time that it changes.
#include "exercises/46-pipeline-by-hand/interface.hpp"
#include "pipeline.cpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound =
    student_training_step.bind(student::pipeline_by_hand::training_step);
}
}  // namespace ringside::exercises
