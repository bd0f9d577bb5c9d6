// The order of additions: which sums an algorithm makes of the ranks' elements, from its schedules.
// Floating-point sums in another order have other bits.
//
//     ring all_reduce, 3 ranks      chunk 0   ((1+2)+0)
//                                   chunk 1   ((0+2)+1)
//                                   chunk 2   ((0+1)+2)
//
// An expression is that of RankState::sums (lockstep.hpp): a+b and b+a are written alike. Each
// executor adds in this order, over every transport.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithms/catalogue.hpp"

namespace ringside::collectives {

// [chunk] the order of its additions where the result is: on all ranks, on the owner of the chunk,
// or on the root. Throws Error if the collective adds nothing, or with the sentence of verify() if
// the algorithm is wrong.
std::vector<std::string> orders_of_additions(const Algorithm& algorithm, int size, int root = 0);

// Whether `many` adds like `few` if each rank of `few` brings the sum of equally many ranks of
// `many`, such as its micro-batches: [rank of few] that sum; nullopt: it does not. With as many
// ranks, whether both are the same.
//
//     few ((0+2)+(1+3))   many (((0+4)+(2+6))+((1+5)+(3+7)))       (0+4) (1+5) (2+6) (3+7)
std::optional<std::vector<std::string>> shares_of(std::string_view few, std::string_view many);

}  // namespace ringside::collectives
