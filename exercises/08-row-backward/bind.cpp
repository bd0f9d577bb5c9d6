// Compiled with the student's files each time that they change.
#include "cross_entropy.cpp"
#include "exercises/08-row-backward/interface.hpp"
#include "rms_norm.cpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound = student_rms_norm.bind(student::autograd::rms_norm) &&
                                    student_cross_entropy.bind(student::autograd::cross_entropy);
}
}  // namespace ringside::exercises
