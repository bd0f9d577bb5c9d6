#include "cli/one_of.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/words.hpp"

namespace ringside::cli {

CLI::Validator one_of(std::vector<std::string> names,
                      std::map<std::string, std::string> also_called) {
  const auto check = [names = std::move(names), also_called = std::move(also_called)](
                         const std::string& value) -> std::string {
    if (std::find(names.begin(), names.end(), value) != names.end()) return "";
    const auto synonym = also_called.find(value);
    const std::string meant = synonym != also_called.end() ? synonym->second : value;
    return fmt::format("expected {}, got '{}'{}", fmt::join(names, ", "), value,
                       did_you_mean(meant, names));
  };
  return CLI::Validator(check, "");
}

}  // namespace ringside::cli
