#include "cli/pictures/palette.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace ringside::cli {

int colour_of(std::string_view meaning) {
  static constexpr std::array<std::pair<std::string_view, int>, 5> colours{{{"activations", 0},
                                                                            {"gradients", 1},
                                                                            {"optimizer state", 3},
                                                                            {"parameters", 4},
                                                                            {"communication", 6}}};
  const auto found = std::ranges::find(colours, meaning, &std::pair<std::string_view, int>::first);
  return found == colours.end() ? 7 : found->second;
}

}  // namespace ringside::cli
