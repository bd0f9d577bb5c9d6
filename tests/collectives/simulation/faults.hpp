// A job of simulated ranks with faults that a seed draws, and what must hold nevertheless:
//
//     every rank ends in time
//     who ends with an error names the rank at fault, by its number in the job. A rank may name
//       another that left because of the fault, and that one names the rank at fault, as the
//       launcher follows flight records, in three cases: the fault shows in a sub-group first; it
//       is that of a link; or rank 0 is at fault, which tells the others while they connect
//     without a fault that a job cannot survive, nobody ends with an error
//     sums are right, or an error is told
//     no stranger is told anything that only the job may know
//     a rank that ends has closed all its descriptors
//
// The ranks connect over TCP, add up values in the whole group and in sub-groups, and finish. They
// run the code of production on a simulated network and clock (simulation.hpp).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tests/collectives/simulation/simulation.hpp"

namespace ringside::collectives {

struct FaultyJob {
  std::uint64_t seed = 0;
  int ranks = 0;                        // 2 to 8
  std::vector<std::string> faults;      // that the seed has drawn, in words
  std::vector<Simulation::Line> lines;  // what happened
  std::vector<std::string> ends;        // [rank] "ended well", or its error
  std::vector<std::string> broken;      // what did not hold
  Seconds time{0};                      // on the simulated clock
};

FaultyJob simulate_faults(std::uint64_t seed);

// The ranks that an error blames, as its reader understands it.
std::set<int> ranks_blamed_in(const std::string& sentence);

}  // namespace ringside::collectives
