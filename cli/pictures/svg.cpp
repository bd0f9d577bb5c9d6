#include "cli/pictures/svg.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "cli/pictures/palette.hpp"

namespace ringside::cli {

std::string escaped(const std::string& text) {
  constexpr std::pair<char, const char*> entities[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};
  std::string safe;
  for (const char c : text) {
    const auto found = std::ranges::find(entities, c, &std::pair<char, const char*>::first);
    if (found != std::end(entities))
      safe += found->second;
    else
      safe += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? '?' : c;
  }
  return safe;
}

std::string svg_file(const std::string& title, double width, double height,
                     const std::string& style, const std::string& content) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\">\n<title>{2}</title>\n"
      "<style>{3}{4}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\" />\n{5}</svg>\n",
      width, height, escaped(title), palette(), style, content);
}

}  // namespace ringside::cli
