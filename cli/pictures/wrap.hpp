// Lines of a given width.
#pragma once

#include <cstddef>
#include <string>

namespace ringside::cli {

// Breaks a paragraph into lines of at most `width` columns.
std::string wrap(const std::string& text, std::size_t width);

}  // namespace ringside::cli
