// Compiled with the student's file each time that it changes.
#include "exercises/15-ddp-overlap/interface.hpp"
#include "overlap.cpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound = student_overlap.bind(make_data_parallel<student::ddp::Overlap>);
}
}  // namespace ringside::exercises
