#include "cli/options/help_formatter.hpp"

#include <map>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "cli/pictures/wrap.hpp"

namespace ringside::cli {

namespace {

// The options of the short helps, by command.
std::map<const CLI::App*, std::vector<const CLI::Option*>>& short_helps() {
  static std::map<const CLI::App*, std::vector<const CLI::Option*>> all;
  return all;
}

}  // namespace

void set_short_help(CLI::App& command, std::vector<std::string> options) {
  command.set_help_all_flag("--help-all", "Print all options, and notes, and exit")
      ->group("Options");
  auto& chosen = short_helps()[&command];
  chosen = {command.get_help_ptr(), command.get_help_all_ptr()};
  for (const std::string& name : options) chosen.push_back(command.get_option(name));
}

std::string text_of(const CLI::Option& option) {
  std::string otherwise = option.get_default_str();
  if (otherwise.starts_with("[")) otherwise = otherwise.substr(1, otherwise.size() - 2);  // a list
  const std::string text = option.get_description();
  const bool says_it = text.ends_with(']');
  return otherwise.empty() || says_it ? text : fmt::format("{} [{}]", text, otherwise);
}

HelpFormatter::HelpFormatter(std::size_t width, std::size_t left) : width_(width), left_(left) {
  column_width(left);
}

// The type only: CLI11 would add the default here, as "NAME=auto".
std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  if (option->get_type_size() == 0) return "";
  std::string text = " " + option->get_type_name();
  if (option->get_required()) text += " (required)";
  return text;
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  return wrapped(text_of(*option));
}

std::string HelpFormatter::make_help(const CLI::App* command, std::string name,
                                     CLI::AppFormatMode mode) const {
  const auto found = short_helps().find(command);
  if (mode != CLI::AppFormatMode::Normal || found == short_helps().end())
    return Formatter::make_help(command, name, mode);
  const std::string footer = make_footer(command);
  return make_description(command) + make_usage(command, name) +
         make_group("The most important options", false, found->second) + "\n" +
         footer.substr(0, footer.find("\n\n") + 1);
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  std::ostringstream out;
  CLI::detail::format_help(out, command->get_name(), wrapped(command->get_description()), left_);
  return out.str();
}

// A footer may begin with a newline in the source; CLI11 adds one of its own.
std::string HelpFormatter::make_footer(const CLI::App* command) const {
  const std::string text = command->get_footer();
  const std::size_t begin = text.find_first_not_of('\n');
  return begin == std::string::npos ? "" : text.substr(begin) + "\n";
}

// Without CLI11's remark on the number of required subcommands.
std::string HelpFormatter::make_description(const CLI::App* command) const {
  const std::string text = command->get_description();
  return (text.find('\n') == std::string::npos ? wrap(text, width_) : text) + "\n";
}

std::string HelpFormatter::wrapped(const std::string& text) const {
  return wrap(text, width_ - left_);
}

}  // namespace ringside::cli
