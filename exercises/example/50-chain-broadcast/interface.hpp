// What the judge calls: the schedule of one rank.
#pragma once

#include "collectives/algorithms/schedule.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

inline Student<collectives::Schedule(int size, int rank, int root, int pieces)>
    student_chain_broadcast;

}  // namespace ringside::exercises
