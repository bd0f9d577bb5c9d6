#include "cli/pictures/palette.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace ringside::cli {

int colour_of(std::string_view meaning) {
  // The calls of an axis have the colour of what they move, where that is one thing.
  static constexpr std::array<std::pair<std::string_view, int>, 24> colours{
      {{"forward", 0},
       {"activations", 0},
       {"matrix products", 0},
       {"backward", 1},
       {"gradients", 1},
       {"dp communication, exposed", 1},
       {"backward weight", 2},
       {"working memory", 2},
       {"optimizer", 3},
       {"optimizer state", 3},
       {"optimizer (memory bandwidth)", 3},
       {"parameters", 4},
       {"fsdp communication, exposed", 4},
       {"cp communication, exposed", 2},
       {"exposed communication", 5},
       {"pp communication, exposed", 5},
       {"gradients under way", 5},
       {"communication", 6},
       {"gathered units", 6},
       {"tp communication, exposed", 6},
       {"other ops (memory bandwidth)", 7},
       {"logits", 8},
       {"launches of kernels", 8},
       {"pipeline bubble", 9}}};
  const auto found = std::ranges::find(colours, meaning, &std::pair<std::string_view, int>::first);
  return found == colours.end() ? 7 : found->second;
}

const char* palette() {
  return R"(
:root {
  --paper: #ffffff; --ink: #1d2329; --soft: #56616b; --grid: #dde2e6; --focus: #111111;
  --c0: #1f66b5; --c1: #a5480f; --c2: #1d7a52; --c3: #7b3f9a; --c4: #7a6400;
  --c5: #b3264a; --c6: #0f7173; --c7: #57606a; --c8: var(--ink); --c9: #a3acb4;
  --panel: #f4f6f8; --added: #d9f0e1; --replaced: #fbeec2;
}
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #16191d; --ink: #e4e8eb; --soft: #a6b0b9; --grid: #363d45; --focus: #ffffff;
  --c0: #62a5f0; --c1: #f08a4b; --c2: #52bd80; --c3: #cb7bdc; --c4: #cda53a;
  --c5: #ec6f8c; --c6: #3fbabc; --c7: #a6b0b9; --c9: #59636d;
  --panel: #1f242a; --added: #173a29; --replaced: #42380f;
} }
@media print { :root { --ink: #000000; --soft: #333333; --grid: #cccccc; --focus: #000000; } }
.paper { fill: var(--paper); } .grid { stroke: var(--grid); }
.c0, .forward { color: var(--c0); } .c1, .backward { color: var(--c1); }
.c2, .weight { color: var(--c2); } .c3, .optimizer { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6, .call { color: var(--c6); }
.c7, .other { color: var(--c7); } .c8 { color: var(--c8); } .c9 { color: var(--c9); }
)";
}

}  // namespace ringside::cli
