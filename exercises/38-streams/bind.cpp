// Compiled with the student's file each time that it changes.
#include "exercises/38-streams/interface.hpp"
#include "overlapped.hpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound = student_process.bind(student::gpu::process);
}
}  // namespace ringside::exercises
