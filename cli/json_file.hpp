// Figures for other programs: what a subcommand writes where `--json FILE` is given.
#pragma once

#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace ringside::cli {

// Keys in the order in which they were set.
using Json = nlohmann::ordered_json;

// Writes `json` to `path`, indented. Throws Error naming the file if that fails.
inline void write_json_file(const std::string& path, const Json& json) {
  std::ofstream file(path);
  file << json.dump(2) << "\n";
  file.close();
  require(!file.fail(), "cannot write the figures to {}: does its folder exist, and may you write there?", path);
}

}  // namespace ringside::cli
