// Compiled with the student's file each time that it changes.
#include "coalesced.hpp"
#include "exercises/33-coalesced/interface.hpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound =
    student_copy.bind(student::gpu::copy<gpu::EmulatedThread>) &&
    student_transpose.bind(student::gpu::transpose<gpu::EmulatedThread>);
}
}  // namespace ringside::exercises
