// Compiled with the student's file each time that it changes.
#include "exercises/35-online-softmax/interface.hpp"
#include "online_softmax.hpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound =
    student_merged.bind(student::gpu::merged<gpu::EmulatedThread>) &&
    student_block_softmax.bind(student::gpu::block_softmax<gpu::EmulatedThread>) &&
    student_cross_entropy.bind(student::gpu::cross_entropy<gpu::EmulatedThread>);
}
}  // namespace ringside::exercises
