// A picture in an SVG file, which Python draws.
#pragma once

#include <string>

#include "base/json.hpp"

namespace ringside::cli {

// Has Python draw a picture (python/ringside/lab/svg.py has its form), and writes the SVG file.
// Throws Error that names the file and `what` ("the plot") if it cannot be written.
void write_svg_file(const std::string& path, const Json& picture, const char* what);

}  // namespace ringside::cli
