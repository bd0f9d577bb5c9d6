// Figures for other programs: what a subcommand writes where `--json FILE` is given. FILE may be
// standard output, as - or /dev/stdout: then the figures have it to themselves, and what is for
// people goes to standard error.
#pragma once

#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace ringside::cli {

// Keys in the order in which they were set.
using Json = nlohmann::ordered_json;

inline bool is_stdout(const std::string& path) {
  return path == "-" || path == "/dev/stdout";
}

// Where to print what is for people, if the figures go to `json_path` ("" for nowhere).
inline std::FILE* file_beside(const std::string& json_path) {
  return is_stdout(json_path) ? stderr : stdout;
}
inline std::ostream& stream_beside(const std::string& json_path) {
  return is_stdout(json_path) ? std::cerr : std::cout;
}

// Writes `json` to `path`, indented. Throws Error naming the file if that fails.
inline void write_json_file(const std::string& path, const Json& json) {
  if (is_stdout(path)) {
    std::cout << json.dump(2) << std::endl;
    return require(!std::cout.fail(), "cannot write the figures to standard output");
  }
  std::ofstream file(path);
  file << json.dump(2) << "\n";
  file.close();
  require(!file.fail(),
          "cannot write the figures to {}: does its folder exist, and may you write there?", path);
}

}  // namespace ringside::cli
