// A number from the text of an option.
#pragma once

#include <sstream>
#include <string>

namespace ringside {

// Reads the whole text: "12", "0x10", "1e9" for a floating-point type. Returns false, and leaves
// `number` undefined, if the text is not a number of this type.
template <class Number>
bool read_number(const std::string& text, Number& number) {
  std::istringstream in(text);
  in.unsetf(std::ios::basefield);  // 0x10 is 16
  in >> number;
  return !in.fail() && in.eof();
}

}  // namespace ringside
