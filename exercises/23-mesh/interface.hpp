// What the judge calls: the arithmetic of a grid of ranks, and the group along an axis.
#pragma once

#include <vector>

#include "collectives/process_group.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

using Sizes = std::vector<int>;

inline Student<std::vector<int>(const Sizes& sizes, int rank)> student_coordinates;
inline Student<int(const Sizes& sizes, const std::vector<int>& coordinates)> student_rank_at;
inline Student<std::vector<int>(const Sizes& sizes, int rank, std::size_t axis)> student_members;
inline Student<collectives::ProcessGroup(const Sizes& sizes, std::size_t axis,
                                         collectives::ProcessGroup& world)>
    student_group_along;

}  // namespace ringside::exercises
