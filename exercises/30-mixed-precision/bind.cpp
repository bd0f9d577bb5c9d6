// Compiled with the student's file each time that it changes.
#include "exercises/30-mixed-precision/interface.hpp"
#include "mixed_precision.hpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound = student_accumulated.bind(student::precision::accumulated) &&
                                    student_largest_scale.bind(student::precision::largest_scale) &&
                                    student_unscaled.bind(student::precision::unscaled) &&
                                    student_result_type.bind(student::precision::result_type);
}
}  // namespace ringside::exercises
