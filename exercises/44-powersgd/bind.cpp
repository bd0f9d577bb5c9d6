// Compiled with the student's file each time that it changes.
#include "exercises/44-powersgd/interface.hpp"
#include "power_sgd.cpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound =
    student_power_sgd.bind(make_compression<student::ddp::PowerSGD>) &&
    student_make_orthonormal.bind(student::ddp::make_orthonormal);
}
}  // namespace ringside::exercises
