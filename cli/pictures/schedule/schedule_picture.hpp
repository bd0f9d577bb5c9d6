// The picture of a collective as SVG: below each other what all ranks hold after each step, and
// between them the messages.
//
//     start      [0][0][0]    [1][1][1]    [2][2][2]      a box is a chunk of a rank's buffer;
//                      ╲_________╱╲___________╱╲__ ...    a colour in it is a rank's contribution
//     step 0     [0][0][*]    [*][1][1]    [2][*][2]
//
// In a browser the chunks travel, over and over; where the reader asks for reduced motion, and in
// print, the picture stands still and shows every step.
#pragma once

#include <string>

#include "collectives/algorithms/catalogue.hpp"

namespace ringside::cli {

inline constexpr int most_drawn_ranks = 8;  // as many as there are colours

// A file of its own, readable on a light and a dark background: text and colours have a contrast of
// 4.5 and more to it. Throws Error unless 1 <= ranks <= 8.
std::string svg_of_schedule(const collectives::Algorithm& algorithm, int ranks, int root);

}  // namespace ringside::cli
