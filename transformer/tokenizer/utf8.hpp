// Where bytes are UTF-8 and where they are not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ringside::transformer {

// Bytes of the well-formed UTF-8 character that `bytes` begins with; 0 if there is none (The
// Unicode Standard, table 3-7).
inline std::size_t utf8_character(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
  const auto goes_on = [&](std::size_t i, std::uint8_t low = 0x80, std::uint8_t high = 0xbf) {
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
  const std::uint8_t low = lead == 0xe0   ? 0xa0
                           : lead == 0xf0 ? 0x90
                                          : 0x80;  // no longer than needed
  const std::uint8_t high = lead == 0xed   ? 0x9f
                            : lead == 0xf4 ? 0x8f
                                           : 0xbf;  // no surrogates, nothing above U+10FFFF
  if (!goes_on(1, low, high)) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (!goes_on(i)) return 0;
  }
  return length;
}

// How many bytes from the beginning are well-formed UTF-8.
inline std::size_t utf8_prefix(std::string_view bytes) {
  std::size_t i = 0;
  while (i < bytes.size()) {
    const std::size_t length = utf8_character(bytes.substr(i));
    if (length == 0) break;
    i += length;
  }
  return i;
}

}  // namespace ringside::transformer
