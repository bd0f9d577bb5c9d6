// The colours of all pictures, charts and pages. One colour has one meaning.
#pragma once

#include <string_view>

namespace ringside::cli {

// The number of the colour of what a name stands for, as in --c0 of the style; -1 if it has none:
//
//   0 blue     forward, what it keeps (activations), and computing
//   1 orange   backward or I, and what it makes: gradients
//   2 green    W, the gradient of the weights alone
//   3 purple   the optimizer and its state
//   4 ochre    parameters
//   5 red      waiting for another rank
//   6 teal     communication
//   7 grey     all else
//   8 ink      of the text
//   9 pale     bubble, idle
int colour_of(std::string_view meaning);

// CSS: the variables --c0 to --c9 for lines and marks, --r0 to --r7 for boxes with text in the
// colour of the paper, and the classes of these colours; for light, dark and print.
const char* palette();

}  // namespace ringside::cli
