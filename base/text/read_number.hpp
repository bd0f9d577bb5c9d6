// Numbers from texts: of options, and as variables and files have them.
#pragma once

#include <charconv>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace ringside {

// Reads the whole text of an option: "12", "0x10", "1e9" for a floating-point type. Returns false,
// and leaves `number` undefined, if the text is not a number of this type.
template <class Number>
bool read_number(const std::string& text, Number& number) {
  std::istringstream in(text);
  in.unsetf(std::ios::basefield);  // 0x10 is 16
  in >> number;
  return !in.fail() && in.eof();
}

// The decimal number that the whole text is, with no space or plus before it; nullopt if the text
// is anything else, or the type cannot hold the number.
template <class Number>
std::optional<Number> decimal_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

}  // namespace ringside
