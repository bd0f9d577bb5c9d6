// Compiled with the student's file each time that it changes.
#include "exercises/00-mean-of-ranks/interface.hpp"
#include "tensor_collectives.cpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound = student_mean.bind(student::ddp::all_reduce_mean);
}
}  // namespace ringside::exercises
