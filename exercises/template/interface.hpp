// What the judge calls: one Student<...> for each function that students write.
#pragma once

#include "exercises/judge/student.hpp"

namespace ringside::exercises {

// FILL IN: the type of the function, with the headers that it needs.
inline Student<int(int size, int rank)> student_new_exercise;

}  // namespace ringside::exercises
