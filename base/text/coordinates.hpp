// Where a rank stands in a grid of ranks, in words.
#pragma once

#include <string>
#include <string_view>

namespace ringside {

// "dp=1,tp=3" is rank 7 of the grid "dp=2,tp=4", whose last axis varies fastest. Empty for a text
// that is no grid, and for a number that is no rank of it.
std::string coordinates_in_words(std::string_view grid, int rank);

}  // namespace ringside
