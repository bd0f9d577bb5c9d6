// What the judge calls: the order of the pieces, the merge, and attention round the ring.
#pragma once

#include "exercises/42-ring-attention/attention.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

inline Student<std::vector<int>(int ranks, int rank)> student_pieces_of;
inline Student<void(context::Partial& seen, const context::Partial& more)> student_merge;
inline Student<std::vector<float>(std::span<const float> q, std::span<const float> k,
                                  std::span<const float> v, int width,
                                  const context::Attend& attend, collectives::ProcessGroup& group)>
    student_ring_attention;

}  // namespace ringside::exercises
