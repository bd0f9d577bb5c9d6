// Compiled with the student's file each time that it changes.
#include "diagnosis.cpp"
#include "exercises/29-hang-clinic/interface.hpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound =
    student_divergence.bind(student::collectives::divergence) &&
    student_laggards.bind(student::collectives::laggards) &&
    student_without_record.bind(student::collectives::without_record) &&
    student_circle.bind(student::collectives::circle);
}
}  // namespace ringside::exercises
