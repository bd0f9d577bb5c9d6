// What the judge calls: the schedules of one rank.
#pragma once

#include "collectives/algorithms/schedule.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

inline Student<collectives::Schedule(int size, int rank, int root)> student_broadcast,
    student_reduce;

}  // namespace ringside::exercises
