#include "cli/pictures/wrap.hpp"

#include <algorithm>
#include <sstream>

namespace ringside::cli {

std::string wrap(const std::string& text, std::size_t width, std::size_t indent) {
  std::istringstream words(text);
  std::string result, word;
  std::size_t column = indent;
  while (words >> word) {
    const bool fits = column + 1 + word.size() <= width;
    if (!result.empty()) result += fits ? " " : "\n" + std::string(indent, ' ');
    column = result.empty() || !fits ? indent + word.size() : column + 1 + word.size();
    result += word;
  }
  return result;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace ringside::cli
