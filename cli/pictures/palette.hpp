// The colours of all pictures, charts and pages. One colour has one meaning.
#pragma once

#include <string_view>

namespace ringside::cli {

// The number of the colour of what a name stands for, as in --c0 of the style:
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

// CSS: the variables --c0 to --c9 and the classes of these colours; for light, dark and print. Text
// in the colours 0 to 7 can be read on the paper, and text in the colour of the paper on them.
const char* palette();

}  // namespace ringside::cli
