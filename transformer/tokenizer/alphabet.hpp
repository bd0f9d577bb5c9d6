// The byte alphabet: a printable letter for each byte, so that JSON can store byte-level tokens.
//
// A token may contain any bytes, but JSON contains only text. GPT-2 (Radford et al., 2019;
// bytes_to_unicode in its encoder) maps bytes that are printable in Latin-1 to themselves. The
// other 68 bytes are mapped, in order, to the code points from 256 on:
//
//     byte     0x00  0x0a  0x20  0x21 .. 0x7e  0x7f  0xa0  0xa1 .. 0xac  0xad  0xae .. 0xff
//     letter    Ā     Ċ     Ġ     !   ..  ~     ġ     ł     ¡   ..  ¬     Ń     ®   ..  ÿ
//
// For example, "the end\n" becomes "theĠendĊ".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ringside::transformer {

// Any bytes as letters, in UTF-8.
std::string to_letters(std::string_view bytes);

// The bytes that `letters` stand for; empty if a character is not the letter of a byte.
std::optional<std::string> from_letters(std::string_view letters);

// All 256 bytes in the order of their letters' code points: '!' first, the soft hyphen's byte 0xad
// last. Trained vocabularies have this order.
std::array<std::uint8_t, 256> bytes_in_order_of_letters();

}  // namespace ringside::transformer
