// What is wrong with schedules, for exercises that do not prescribe which rank sends what when.
#pragma once

#include <functional>
#include <string>

#include "exercises/judge/collectives/schedules.hpp"

namespace ringside::exercises {

// The first fault of the schedules for 1 to `largest` ranks and every root, with its steps:
// "world 3, root 1: at the end chunk 0 on rank 2 lacks rank 1". `schedules` returns those of all
// ranks; for a collective without a root it is asked for root 0 only.
Verdict fault_of_promise(collectives::Collective collective, int largest,
                         const std::function<Schedules(int size, int root)>& schedules);

// "4 steps, expected 3" if the schedules take more than ceil(log2(size)) steps, else "". After
// each step at most twice as many ranks know something as before it, so fewer steps cannot do.
std::string fault_of_logarithm(const Schedules& schedules);

}  // namespace ringside::exercises
