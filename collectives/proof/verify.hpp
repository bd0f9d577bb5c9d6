// Verify: is an algorithm right? Follow every rank's contributions through the schedules of all
// ranks and look at the end.
//
// Nothing is computed with real data and nothing is left to chance: the schedules of all ranks are
// run in lockstep over contributions (lockstep.hpp), and at the end each chunk on each rank must
// hold exactly whose contributions the collective promises (Collective, in
// algorithms/catalogue.hpp). Along the way each rank remembers from whom it has heard, directly or
// through others ("happens before", Lamport 1978), which is all that a barrier is about.
//
// An empty list means proved, for this number of ranks and this root. Otherwise each entry is one
// sentence:
//
//     step 3: rank 2 sends chunk 1 to rank 3, but rank 3 expects chunk 0 from rank 2
//     at the end chunk 2 on rank 1 holds rank 3 twice and lacks rank 0
//
// The sentences come in three layers, and a layer is looked at only if those before it are in
// order: the shape of the schedules (as many steps and chunks on every rank), the messages of each
// step, what is held at the end. Of an all-reduce the end includes that every rank has added up in
// the same order, so that all hold the same bits also where adding rounds.
#pragma once

#include <string>
#include <vector>

#include "collectives/algorithms/catalogue.hpp"
#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// schedules[r] is rank r's. `root` counts only where the collective has one.
std::vector<std::string> verify(Collective collective, const std::vector<Schedule>& schedules,
                                int root = 0);

// The schedules that the algorithm makes; each sentence begins with what was looked at: "ring
// all_reduce, 4 ranks: ...".
std::vector<std::string> verify(const Algorithm& algorithm, int size, int root = 0);

// "ring all_reduce, 4 ranks"; "binomial reduce, 4 ranks, root 2".
std::string case_in_words(const Algorithm& algorithm, int size, int root);

// "rank 3", "ranks 0 and 2", "ranks 0 to 5 and 8". `ranks` is ascending and not empty.
std::string ranks_in_words(const std::vector<int>& ranks);

}  // namespace ringside::collectives
