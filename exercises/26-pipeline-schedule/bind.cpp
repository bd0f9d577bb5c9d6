// Compiled with the student's files each time that they change.
#include "exercises/26-pipeline-schedule/interface.hpp"
#include "gpipe.hpp"
#include "one_f_one_b.hpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound =
    student_gpipe.bind(student::pipeline_parallel::gpipe) &&
    student_one_f_one_b.bind(student::pipeline_parallel::one_f_one_b);
}
}  // namespace ringside::exercises
