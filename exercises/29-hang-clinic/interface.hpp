// What the judge calls: questions to the flight records of a group.
#pragma once

#include "collectives/diagnostics/diagnosis.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

using Flights = std::vector<collectives::Flight>;

inline Student<std::optional<collectives::Divergence>(const Flights&)> student_divergence;
inline Student<std::optional<collectives::Laggards>(const Flights&)> student_laggards;
inline Student<std::vector<int>(const Flights&)> student_without_record, student_circle;

}  // namespace ringside::exercises
