#include "cli/pictures/command_result.hpp"

#include <cstdio>

#include <fmt/format.h>

#include "cli/pictures/json_file.hpp"

namespace ringside::cli {

void write_results(const std::vector<CommandResult>& results, const std::string& json_path) {
  std::FILE* const out = file_beside(json_path);
  Json all = Json::array();
  for (const CommandResult& result : results) {
    fmt::print(out, "{}{}", &result == &results.front() ? "" : "\n", result.text);
    const Json rows = result.figures.is_array() ? result.figures : Json::array({result.figures});
    for (const Json& row : rows) all.push_back(row);
  }
  std::fflush(out);
  if (json_path.empty()) return;
  write_json_file(json_path, results.size() == 1 ? results[0].figures : all);
}

}  // namespace ringside::cli
