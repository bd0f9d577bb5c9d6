#include "cli/views/help_formatter.hpp"

#include <sstream>

#include <fmt/format.h>

namespace ringside::cli {

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
  std::string otherwise = option->get_default_str();
  if (otherwise.starts_with("[")) otherwise = otherwise.substr(1, otherwise.size() - 2);  // a list
  const std::string text = option->get_description();
  return wrapped(otherwise.empty() ? text : fmt::format("{} [{}]", text, otherwise));
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

std::string wrap(const std::string& text, std::size_t width) {
  std::istringstream words(text);
  std::string result, word;
  std::size_t column = 0;
  while (words >> word) {
    const bool fits = column > 0 && column + 1 + word.size() <= width;
    if (column > 0) result += fits ? " " : "\n";
    column = fits ? column + 1 + word.size() : word.size();
    result += word;
  }
  return result;
}

}  // namespace ringside::cli
