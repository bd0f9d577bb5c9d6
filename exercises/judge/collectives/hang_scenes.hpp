// Flight records of groups that hang, made from a seed, with a known cause.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/diagnostics/flight_recorder.hpp"

namespace ringside::exercises {

struct HangScene {
  std::string name;  // its cause, in words
  std::vector<collectives::Flight> flights;
};

// Three scenes of each cause: a call that one rank leaves out, two ranks that are late, a rank that
// was killed, and a circle of ranks that wait for each other.
std::vector<HangScene> hang_scenes(std::uint64_t seed);

}  // namespace ringside::exercises
