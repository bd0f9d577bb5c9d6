// UTF-8: finds the well-formed characters in any bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ringside {

// The length in bytes of the well-formed UTF-8 character at the beginning of `bytes`; 0 if there is
// none (The Unicode Standard, table 3-7).
inline std::size_t utf8_character(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
  const auto is_continuation = [&](std::size_t i, std::uint8_t low = 0x80,
                                   std::uint8_t high = 0xbf) {
    return at(i) >= low && at(i) <= high;
  };
  if (bytes.empty()) return 0;
  const std::uint8_t lead = at(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead < 0xc2   ? 0
                             : lead < 0xe0 ? 2
                             : lead < 0xf0 ? 3
                             : lead < 0xf5 ? 4
                                           : 0;
  if (length == 0 || bytes.size() < length) return 0;
  // The second byte has a smaller range in these cases: no overlong forms (low), no surrogates and
  // nothing above U+10FFFF (high).
  const std::uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const std::uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  if (!is_continuation(1, low, high)) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (!is_continuation(i)) return 0;
  }
  return length;
}

// The number of bytes at the beginning that are well-formed UTF-8.
inline std::size_t utf8_prefix(std::string_view bytes) {
  std::size_t i = 0;
  while (i < bytes.size()) {
    const std::size_t length = utf8_character(bytes.substr(i));
    if (length == 0) break;
    i += length;
  }
  return i;
}

}  // namespace ringside
