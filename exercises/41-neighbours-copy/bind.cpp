// Compiled with the student's file each time that it changes.
#include "exercises/41-neighbours-copy/interface.hpp"
#include "neighbours_copy.hpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound =
    student_held.bind(student::backup::held) && student_copies.bind(student::backup::copies) &&
    student_survives.bind(student::backup::survives) && student_step.bind(student::backup::step) &&
    student_cost.bind(student::backup::cost);
}
}  // namespace ringside::exercises
