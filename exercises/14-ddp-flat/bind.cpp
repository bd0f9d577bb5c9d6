// Compiled with the student's file each time that it changes.
#include "exercises/14-ddp-flat/interface.hpp"
#include "flat.cpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound = student_flat.bind(make_data_parallel<student::ddp::Flat>);
}
}  // namespace ringside::exercises
