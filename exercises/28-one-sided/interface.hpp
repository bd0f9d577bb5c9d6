// What the judge calls: the tests of numbers, and runs of the student's protocol.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exercises/judge/student.hpp"

namespace ringside::exercises {

using Number = std::uint32_t;

inline Student<bool(Number count, Number number)> student_reached, student_has_arrived;
inline Student<bool(Number released, Number number, Number slots)> student_slot_is_free;
// As exercises/judge/collectives/one_sided_runs.hpp says.
inline Student<std::vector<std::vector<std::string>>()> student_orders;
inline Student<std::size_t(std::uint64_t seed, Number start)> student_wrong_words;
inline Student<std::size_t(int ranks, int blocks, std::uint64_t seed, Number start)>
    student_wrong_sums;

}  // namespace ringside::exercises
