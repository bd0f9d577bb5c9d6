// Writes a whole file at once, a drawing or a report, and says where it is.
#pragma once

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "base/error.hpp"

namespace ringside::cli {

// Throws Error that names the file and `what` ("the report") if the file cannot be written.
inline void write_text_file(const std::string& path, const std::string& text, const char* what) {
  errno = 0;
  std::ofstream file(path);
  file << text;
  file.close();
  require(!file.fail(), "cannot write {} to {}: {}", what, path, std::strerror(errno));
}

// "report, to open in a browser: step.html": how every command says where a page is.
inline std::string page_line(const std::string& what, const std::string& path) {
  return what + ", to open in a browser: " + path + "\n";
}

}  // namespace ringside::cli
