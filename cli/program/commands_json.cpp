#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/program/reference.hpp"

namespace ringside::cli {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(OptionText, names, text, group, words)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CommandText, name, description, footer, options, subcommands)

std::string json_text(const CommandText& ringside) {
  return nlohmann::json(ringside).dump(1) + "\n";
}

std::vector<CommandText> commands_from_json(const std::string& text) {
  try {
    return nlohmann::json::parse(text).get<CommandText>().subcommands;
  } catch (const nlohmann::json::exception& error) {
    fail("cannot read what another program tells of its commands ({}): build it again",
         error.what());
  }
}

}  // namespace ringside::cli
