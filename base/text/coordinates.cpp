#include "base/text/coordinates.hpp"

#include <charconv>

#include <fmt/format.h>

namespace ringside {

std::string coordinates_in_words(std::string_view grid, int rank) {
  std::string text;
  while (!grid.empty() && rank >= 0) {  // from the last axis to the first
    const std::size_t comma = grid.rfind(',');
    const std::string_view axis = grid.substr(comma == grid.npos ? 0 : comma + 1);
    grid = grid.substr(0, comma == grid.npos ? 0 : comma);
    const std::size_t equals = axis.find('=');
    int size = 0;
    if (equals != axis.npos)
      std::from_chars(axis.data() + equals + 1, axis.data() + axis.size(), size);
    if (size < 1) return {};
    text.insert(
        0, fmt::format("{}{}={}", grid.empty() ? "" : ",", axis.substr(0, equals), rank % size));
    rank /= size;
  }
  return rank == 0 ? text : std::string();
}

}  // namespace ringside
