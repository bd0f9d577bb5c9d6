// The catalogue: all algorithms of all collectives.
//
// To add an algorithm, add one line to catalogue.cpp: it is then proved, drawn, run, costed and
// offered for selection.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithms/collective.hpp"
#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

inline constexpr Collective all_collectives[] = {
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
    Collective::broadcast,  Collective::reduce,         Collective::gather,
    Collective::scatter,    Collective::all_to_all,     Collective::barrier};

// The collective of that name. Throws Error with a list of those that exist.
Collective collective_named(std::string_view name);

struct Algorithm {
  Collective collective;
  std::string_view name;                           // "ring", unique within a collective
  Schedule (*make)(int size, int rank, int root);  // ignores root where the collective has none
  bool cautionary = false;  // for comparison only: it runs when asked for by name, never by default

  // "ring all_reduce"
  std::string title() const { return std::string(name) + " " + std::string(name_of(collective)); }
};

// All of them, in the order of `all_collectives`; the first of a collective is its default.
const std::vector<Algorithm>& all_algorithms();

// The algorithm of that name for `collective`; the default if the name is empty. Throws Error with
// a list of those that exist.
const Algorithm& find_algorithm(Collective collective, std::string_view name = "");

// Its index in all_algorithms(): Call::algorithm. `algorithm` must be a reference into that list.
std::uint8_t number_of(const Algorithm& algorithm);

// The schedules of all ranks; element r is rank r's. Throws Error unless size >= 1 and
// 0 <= root < size.
std::vector<Schedule> make_schedules(const Algorithm& algorithm, int size, int root = 0);

}  // namespace ringside::collectives
