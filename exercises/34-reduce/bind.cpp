// Compiled with the student's file each time that it changes.
#include "exercises/34-reduce/interface.hpp"
#include "reduce.hpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound =
    student_warp_sum.bind(student::gpu::warp_sum<gpu::EmulatedThread>) &&
    student_block_sum.bind(student::gpu::block_sum<gpu::EmulatedThread>) &&
    student_row_sums.bind(student::gpu::row_sums<gpu::EmulatedThread>);
}
}  // namespace ringside::exercises
