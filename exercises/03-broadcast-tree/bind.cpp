// Compiled with the student's file each time that it changes.
#include "binomial.hpp"
#include "exercises/03-broadcast-tree/interface.hpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound =
    student_broadcast.bind(student::collectives::binomial_broadcast) &&
    student_reduce.bind(student::collectives::binomial_reduce);
}
}  // namespace ringside::exercises
