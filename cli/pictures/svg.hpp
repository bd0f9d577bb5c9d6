// What all drawings share: text that is safe in them, and the frame of a drawing in a file.
#pragma once

#include <string>

namespace ringside::cli {

// Escapes text for HTML and SVG.
std::string escaped(const std::string& text);

// A drawing as a file of its own, readable on a light and a dark background. `style` is CSS beside
// the palette, `title` is for screen readers.
std::string svg_file(const std::string& title, double width, double height,
                     const std::string& style, const std::string& content);

}  // namespace ringside::cli
