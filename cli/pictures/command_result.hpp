// What a command has found out, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"

namespace ringside::cli {

// Of one question: of a bench over one backend, or with one number of threads.
struct CommandResult {
  std::string text;  // for people
  Json figures;      // rows, or an object
};

// Prints the texts, separated by blank lines, and writes the figures to `json_path`, if there is
// one. The rows of several results become one array; several objects become an array.
void write_results(const std::vector<CommandResult>& results, const std::string& json_path);

}  // namespace ringside::cli
