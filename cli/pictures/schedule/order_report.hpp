// What `ringside prove --order` and `--same-as` print: in which order an algorithm adds
// (collectives/proof/order.hpp), and whether another one, or the same on more ranks, does alike.
#pragma once

#include "cli/pictures/command_result.hpp"
#include "collectives/algorithms/catalogue.hpp"

namespace ringside::cli {

// A line for each chunk; one line if all chunks are added up alike.
CommandResult report_order(const collectives::Algorithm& algorithm, int size);

// Whether a on size_a ranks and b on size_b ranks add in the same order. With more ranks on one
// side, whether they do if each rank of the smaller side brings what several of the larger one
// hold.
CommandResult report_same_order(const collectives::Algorithm& a, int size_a,
                                const collectives::Algorithm& b, int size_b);

}  // namespace ringside::cli
