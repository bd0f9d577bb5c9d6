// Text in the lines and columns of a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ringside::cli {

// Breaks a paragraph into lines of at most `width` columns. The first line begins where the caller
// has printed `indent` columns; the others begin with as many spaces.
std::string wrap(const std::string& text, std::size_t width, std::size_t indent = 0);

// The text between line breaks.
std::vector<std::string> lines_of(const std::string& text);

// The columns that a text takes: the bytes that do not continue a UTF-8 character.
std::size_t columns_of(std::string_view text);

}  // namespace ringside::cli
