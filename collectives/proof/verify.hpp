// Verify: proves that schedules keep the promise of a collective, for one number of ranks.
//
// verify() runs the schedules of all ranks in lockstep (lockstep.hpp) and follows whose
// contributions each chunk holds. It checks three things, each only if those before are in order:
//   1. every rank has the same number of steps and chunks;
//   2. in each step sends and receives match;
//   3. at the end each chunk holds exactly what the collective promises (collective.hpp), and in an
//      all-reduce every rank has added in the same order, so that all hold the same bits.
//
// An empty result means proved. Otherwise each entry is a sentence:
//
//     step 3: rank 2 sends chunk 1 to rank 3, but rank 3 expects chunk 0 from rank 2
//     at the end chunk 2 on rank 1 holds rank 3 twice and lacks rank 0
#pragma once

#include <string>
#include <vector>

#include "collectives/algorithms/collective.hpp"
#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// schedules[r] is rank r's. `root` counts only where the collective has one.
std::vector<std::string> verify(Collective collective, const std::vector<Schedule>& schedules,
                                int root = 0);

}  // namespace ringside::collectives
