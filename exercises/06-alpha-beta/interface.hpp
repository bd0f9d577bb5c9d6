// What the judge calls: the fit of a model with two parameters, and the bandwidth of a link.
#pragma once

#include <utility>
#include <vector>

#include "collectives/call.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

// Measured all-reduces as (bytes, seconds) -> o in seconds, w in bytes per second.
inline Student<std::pair<double, double>(const std::vector<std::pair<double, double>>&)>
    student_fit;
inline Student<double(const collectives::Call& call, int ranks, double seconds)>
    student_bus_bandwidth;

}  // namespace ringside::exercises
