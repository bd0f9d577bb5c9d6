#include "cli/pictures/wrap.hpp"

#include <sstream>

namespace ringside::cli {

std::string wrap(const std::string& text, std::size_t width) {
  std::istringstream words(text);
  std::string result, word;
  std::size_t column = 0;
  while (words >> word) {
    const bool fits = column > 0 && column + 1 + word.size() <= width;
    if (column > 0) result += fits ? " " : "\n";
    column = fits ? column + 1 + word.size() : word.size();
    result += word;
  }
  return result;
}

}  // namespace ringside::cli
