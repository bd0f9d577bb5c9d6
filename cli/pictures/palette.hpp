// The colours of all pictures, charts and pages. One colour has one meaning:
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
#pragma once

namespace ringside::cli {

// CSS: the variables --c0 to --c9 and the classes of these colours; for light, dark and print. Text
// in the colours 0 to 7 can be read on the paper, and text in the colour of the paper on them.
const char* palette();

// CSS: the style of a chart, in the colours of the palette.
const char* chart_style();

}  // namespace ringside::cli
