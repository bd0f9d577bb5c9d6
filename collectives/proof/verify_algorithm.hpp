// Proves an algorithm of the catalogue for one number of ranks.
#pragma once

#include <string>
#include <vector>

#include "collectives/algorithms/catalogue.hpp"

namespace ringside::collectives {

// verify() of all ranks' schedules. Each sentence begins "ring all_reduce, 4 ranks: ".
std::vector<std::string> verify(const Algorithm& algorithm, int size, int root = 0);

// "ring all_reduce, 4 ranks"; "binomial reduce, 4 ranks, root 2".
std::string case_in_words(const Algorithm& algorithm, int size, int root);

}  // namespace ringside::collectives
