// What the judge calls: what ranks hold, whether they survive a loss, and the actions of a step.
#pragma once

#include "exercises/41-neighbours-copy/pieces.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

using PiecesOf = Student<backup::Pieces(backup::Strategy strategy, int ranks, int rank)>;

inline PiecesOf student_held, student_copies;
inline Student<bool(backup::Strategy strategy, int ranks, const std::set<int>& lost)>
    student_survives;
inline Student<std::vector<backup::Action>(backup::Strategy strategy)> student_step;
inline Student<backup::Bytes(backup::Strategy strategy, double parameters, int ranks)> student_cost;

}  // namespace ringside::exercises
