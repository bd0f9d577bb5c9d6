// Compiled with the student's files each time that one of them changes.
#include "exercises/20-zero2/interface.hpp"
#include "gradient_shards.cpp"
#include "zero2.hpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound = student_stage2.bind(make_sharded_method<student::zero::Zero2>);
}
}  // namespace ringside::exercises
