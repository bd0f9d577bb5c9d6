// Writes a whole file at once: a drawing, a report.
#pragma once

#include <fstream>
#include <string>

#include "base/error.hpp"

namespace ringside::cli {

// Throws Error that names the file and `what` ("the report") if the file cannot be written.
inline void write_text_file(const std::string& path, const std::string& text, const char* what) {
  std::ofstream file(path);
  file << text;
  file.close();
  require(!file.fail(), "cannot write {} to {}: does its folder exist, and may you write there?",
          what, path);
}

}  // namespace ringside::cli
