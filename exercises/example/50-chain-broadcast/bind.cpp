// Compiled with the student's file each time that it changes.
#include "chain_broadcast.hpp"
#include "interface.hpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound =
    student_chain_broadcast.bind(student::collectives::chain_broadcast);
}
}  // namespace ringside::exercises
