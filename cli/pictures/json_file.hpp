// Figures for other programs: the file of `--json FILE`.
//
// FILE may be standard output, as - or /dev/stdout. Then only the figures go there, and the text
// for people goes to standard error.
#pragma once

#include <cstdio>
#include <iostream>
#include <string>

#include "base/error.hpp"
#include "base/json.hpp"
#include "cli/pictures/text_file.hpp"

namespace ringside::cli {

inline bool is_stdout(const std::string& path) {
  return path == "-" || path == "/dev/stdout";
}

// Where to print text for people when the figures go to `json_path` ("": nowhere).
inline std::FILE* file_beside(const std::string& json_path) {
  return is_stdout(json_path) ? stderr : stdout;
}
inline std::ostream& stream_beside(const std::string& json_path) {
  return is_stdout(json_path) ? std::cerr : std::cout;
}

// Writes `json` to `path`, indented. Throws Error that names the file if it cannot be written.
inline void write_json_file(const std::string& path, const Json& json) {
  std::fflush(stdout);  // so that what is printed stands before an error
  if (!is_stdout(path)) return write_text_file(path, json.dump(2) + "\n", "the figures");
  std::cout << json.dump(2) << std::endl;
  require(!std::cout.fail(), "cannot write the figures to standard output");
}

}  // namespace ringside::cli
