// A byte as a letter that can be seen: how a byte-level vocabulary is written down as text.
//
// A token is any bytes, and JSON holds only text. So GPT-2 (Radford et al., 2019; its encoder's
// bytes_to_unicode) gave every byte a letter: bytes that are printable in Latin-1 stand for
// themselves, and the other 68, in their order, for the code points from 256 on:
//
//     byte     0x00  0x0a  0x20  0x21 .. 0x7e  0x7f  0xa0  0xa1 .. 0xac  0xad  0xae .. 0xff
//     letter    Ā     Ċ     Ġ     !   ..  ~     ġ     ł     ¡   ..  ¬     Ń     ®   ..  ÿ
//
// "the end\n" is thus written "theĠendĊ".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ringside::transformer {

// Any bytes, as letters in UTF-8.
std::string to_letters(std::string_view bytes);

// The bytes that `letters` stand for; nothing if there is a character among them that is no byte's
// letter.
std::optional<std::string> from_letters(std::string_view letters);

// All 256 bytes in the order of their letters' code points: '!' first, the soft hyphen's byte 0xad
// last. A trained vocabulary begins so.
std::array<std::uint8_t, 256> bytes_in_order_of_letters();

}  // namespace ringside::transformer
