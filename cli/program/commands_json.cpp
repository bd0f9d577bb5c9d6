#include "base/error.hpp"
#include "base/json.hpp"
#include "cli/program/reference.hpp"

namespace ringside {

template <>
struct JsonForm<cli::OptionText> {
  static Json to_json(const cli::OptionText& option) {
    return {{"names", option.names},
            {"text", option.text},
            {"group", option.group},
            {"words", option.words}};
  }
  static cli::OptionText from_json(const Json& json) {
    return {json.at("names"), json.at("text"), json.at("group"), json.at("words")};
  }
};

template <>
struct JsonForm<cli::CommandText> {
  static Json to_json(const cli::CommandText& command) {
    return {{"name", command.name},
            {"description", command.description},
            {"footer", command.footer},
            {"options", command.options},
            {"subcommands", command.subcommands}};
  }
  static cli::CommandText from_json(const Json& json) {
    return {json.at("name"), json.at("description"), json.at("footer"), json.at("options"),
            json.at("subcommands")};
  }
};

}  // namespace ringside

namespace ringside::cli {

std::string json_text(const CommandText& ringside) {
  return Json(ringside).dump(1) + "\n";
}

std::vector<CommandText> commands_from_json(const std::string& text) {
  try {
    return Json::parse(text).get<CommandText>().subcommands;
  } catch (const Error& error) {
    fail("cannot read what another program tells of its commands ({}): build it again",
         error.what());
  }
}

}  // namespace ringside::cli
