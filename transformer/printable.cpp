#include "transformer/printable.hpp"

#include <fmt/format.h>

namespace ringside::transformer {
namespace {

// Bytes of the UTF-8 character that `bytes` begins with, if it is one of two to four bytes that a
// terminal may show; otherwise 0.
std::size_t utf8_length(std::span<const std::uint8_t> bytes) {
  const std::uint8_t lead = bytes[0];
  const std::size_t length = lead >= 0xc2 && lead <= 0xdf   ? 2
                             : (lead & 0xf0) == 0xe0        ? 3
                             : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                            : 0;
  if (length == 0 || bytes.size() < length) return 0;
  std::uint32_t point = lead & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((bytes[i] & 0xc0) != 0x80) return 0;
    point = point << 6 | (bytes[i] & 0x3fu);
  }
  constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool overlong = point < smallest[length];
  const bool surrogate = point >= 0xd800 && point <= 0xdfff;
  const bool control = point < 0xa0;
  const bool turns_the_text = (point >= 0x200e && point <= 0x200f) ||
                              (point >= 0x2028 && point <= 0x202e) ||
                              (point >= 0x2066 && point <= 0x2069);
  return overlong || surrogate || control || turns_the_text || point > 0x10ffff ? 0 : length;
}

}  // namespace

std::string printable(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size();) {
    const std::uint8_t byte = bytes[i];
    const bool plain = (byte >= 0x20 && byte < 0x7f) || byte == '\n' || byte == '\t';
    const std::size_t length = plain ? 1 : utf8_length(bytes.subspan(i));
    if (length == 0) {
      text += fmt::format("\\x{:02x}", byte);
      ++i;
      continue;
    }
    text.append(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                bytes.begin() + static_cast<std::ptrdiff_t>(i + length));
    i += length;
  }
  return text;
}

}  // namespace ringside::transformer
