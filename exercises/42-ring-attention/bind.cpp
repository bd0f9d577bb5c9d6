// Compiled with the student's file each time that it changes.
#include "exercises/42-ring-attention/interface.hpp"
#include "ring_attention.hpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound = student_pieces_of.bind(student::context::pieces_of) &&
                                    student_merge.bind(student::context::merge) &&
                                    student_ring_attention.bind(student::context::ring_attention);
}
}  // namespace ringside::exercises
