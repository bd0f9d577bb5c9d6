// Compiled with the student's file each time that it changes.
#include "exercises/43-expert-parallel/interface.hpp"
#include "expert_parallel.hpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound =
    student_route.bind(student::experts::route) &&
    student_plan_dispatch.bind(student::experts::plan_dispatch) &&
    student_dispatch.bind(student::experts::dispatch) &&
    student_combine.bind(student::experts::combine) &&
    student_combine_backward.bind(student::experts::combine_backward) &&
    student_dispatch_backward.bind(student::experts::dispatch_backward) &&
    student_route_backward.bind(student::experts::route_backward);
}
}  // namespace ringside::exercises
