#include "transformer/tokenizer/alphabet.hpp"

#include <algorithm>
#include <numeric>

namespace ringside::transformer {
namespace {

constexpr bool is_its_own_letter(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr int others = 68;  // bytes that are not their own letter

struct Letters {
  std::array<std::uint16_t, 256> of_byte{};
  std::array<std::int16_t, 256 + others> to_byte{};  // by code point; -1: not a letter
};

constexpr Letters alphabet = [] {
  Letters made;
  made.to_byte.fill(-1);
  std::uint16_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    made.of_byte[byte] = is_its_own_letter(byte) ? static_cast<std::uint16_t>(byte) : next++;
    made.to_byte[made.of_byte[byte]] = static_cast<std::int16_t>(byte);
  }
  return made;
}();

}  // namespace

std::string to_letters(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    // Letters are below 0x800, so each takes one or two bytes of UTF-8.
    const std::uint16_t letter = alphabet.of_byte[static_cast<std::uint8_t>(byte)];
    if (letter < 0x80) {
      text += static_cast<char>(letter);
    } else {
      text += static_cast<char>(0xc0 | letter >> 6);
      text += static_cast<char>(0x80 | (letter & 0x3f));
    }
  }
  return text;
}

std::optional<std::string> from_letters(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t letter = static_cast<std::uint8_t>(text[i]);
    if (letter >= 0x80) {
      if ((letter & 0xe0) != 0xc0 || i + 1 == text.size()) return std::nullopt;
      letter = (letter & 0x1f) << 6 | (static_cast<std::uint8_t>(text[++i]) & 0x3f);
    }
    if (letter >= alphabet.to_byte.size() || alphabet.to_byte[letter] < 0) return std::nullopt;
    bytes += static_cast<char>(alphabet.to_byte[letter]);
  }
  return bytes;
}

std::array<std::uint8_t, 256> bytes_in_order_of_letters() {
  std::array<std::uint8_t, 256> bytes{};
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  std::sort(bytes.begin(), bytes.end(), [](std::uint8_t a, std::uint8_t b) {
    return alphabet.of_byte[a] < alphabet.of_byte[b];
  });
  return bytes;
}

}  // namespace ringside::transformer
