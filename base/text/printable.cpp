#include "base/text/printable.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/text/utf8.hpp"

namespace ringside {
namespace {

// The length of the UTF-8 character at the beginning of `bytes`, if it has two to four bytes and is
// safe to print; otherwise 0.
std::size_t printable_character(std::string_view bytes) {
  const std::size_t length = utf8_character(bytes);
  if (length < 2) return 0;
  std::uint32_t point = static_cast<std::uint8_t>(bytes[0]) & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i)
    point = point << 6 | (static_cast<std::uint8_t>(bytes[i]) & 0x3fu);
  const bool control = point < 0xa0;
  const bool changes_direction = (point >= 0x200e && point <= 0x200f) ||
                                 (point >= 0x2028 && point <= 0x202e) ||
                                 (point >= 0x2066 && point <= 0x2069);
  return control || changes_direction ? 0 : length;
}

}  // namespace

std::string printable(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const auto byte = static_cast<std::uint8_t>(bytes[0]);
    const bool plain = (byte >= 0x20 && byte < 0x7f) || byte == '\n' || byte == '\t';
    const std::size_t length = plain ? 1 : printable_character(bytes);
    length == 0 ? text += fmt::format("\\x{:02x}", byte) : text += bytes.substr(0, length);
    bytes.remove_prefix(std::max<std::size_t>(1, length));
  }
  return text;
}

std::string printable_line(std::string_view bytes) {
  std::string line;
  for (const char c : printable(bytes)) {
    if (c == '\n')
      line += "\\n";
    else if (c == '\t')
      line += "\\t";
    else
      line += c;
  }
  return line;
}

}  // namespace ringside
