#include "base/printable.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace ringside {
namespace {

// The length of the UTF-8 character at the beginning of `bytes`, if it has two to four bytes and is
// safe to print; otherwise 0.
std::size_t utf8_length(std::string_view bytes) {
  const auto lead = static_cast<std::uint8_t>(bytes[0]);
  const std::size_t length = lead >= 0xc2 && lead <= 0xdf   ? 2
                             : (lead & 0xf0) == 0xe0        ? 3
                             : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                            : 0;
  if (length == 0 || bytes.size() < length) return 0;
  std::uint32_t point = lead & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<std::uint8_t>(bytes[i]);
    if ((byte & 0xc0) != 0x80) return 0;
    point = point << 6 | (byte & 0x3fu);
  }
  constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool overlong = point < smallest[length];
  const bool surrogate = point >= 0xd800 && point <= 0xdfff;
  const bool control = point < 0xa0;
  const bool changes_direction = (point >= 0x200e && point <= 0x200f) ||
                                 (point >= 0x2028 && point <= 0x202e) ||
                                 (point >= 0x2066 && point <= 0x2069);
  return overlong || surrogate || control || changes_direction || point > 0x10ffff ? 0 : length;
}

}  // namespace

std::string printable(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const auto byte = static_cast<std::uint8_t>(bytes[0]);
    const bool plain = (byte >= 0x20 && byte < 0x7f) || byte == '\n' || byte == '\t';
    const std::size_t length = plain ? 1 : utf8_length(bytes);
    if (length == 0)
      text += fmt::format("\\x{:02x}", byte);
    else
      text += bytes.substr(0, length);
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
