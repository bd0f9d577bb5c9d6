// Bytes from elsewhere as text that is safe to print: from another rank, from a model, from a file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ringside {

// Keeps printable ASCII, line breaks, tabs and valid UTF-8 characters. Every other byte becomes
// \xNN: control characters, which could move the cursor, and bytes that are not UTF-8.
std::string printable(std::string_view bytes);
inline std::string printable(std::span<const std::uint8_t> bytes) {
  return printable(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

// The same on one line: a line break becomes \n, and a tab \t.
std::string printable_line(std::string_view bytes);

}  // namespace ringside
