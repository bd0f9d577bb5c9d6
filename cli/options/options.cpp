#include "cli/options/options.hpp"

#include <CLI/CLI.hpp>

#include "cli/options/help_formatter.hpp"

namespace ringside::cli {

const DeclaredOption& DeclaredOption::required() const {
  option_->required();
  return *this;
}

const DeclaredOption& DeclaredOption::excludes(const DeclaredOption& other) const {
  option_->excludes(other.option_);
  return *this;
}

const DeclaredOption& DeclaredOption::separated_by(char delimiter) const {
  option_->delimiter(delimiter);
  return *this;
}

const DeclaredOption& DeclaredOption::show_default() const {
  option_->capture_default_str();
  return *this;
}

const DeclaredOption& DeclaredOption::hide() const {
  option_->group("");
  return *this;
}

void Options::group(const std::string& heading) const {
  command_.option_defaults()->group(heading);
}

void Options::show_defaults() const {
  command_.option_defaults()->always_capture_default();
}

void Options::last_ones_count() const {
  for (CLI::Option* option : command_.get_options())
    if (option->get_items_expected_max() == 1) option->take_last();
}

void Options::short_help(const std::vector<std::string>& names) const {
  set_short_help(command_, names);
}

DeclaredOption Options::declare(const std::string& name, const Destination& destination,
                                const std::string& text, const Check& check) const {
  const std::size_t end = name.find(' ');
  const std::string type = end == std::string::npos ? "" : name.substr(end + 1);
  CLI::Option* const option =
      command_.add_option(name.substr(0, end), destination.take, text, false, destination.text);
  if (destination.many) option->expected(CLI::detail::expected_max_vector_size);
  if (destination.many && type.ends_with(",...")) option->delimiter(',')->allow_extra_args(false);
  if (check)
    option->check(CLI::Validator([check](const std::string& value) { return check(value); }, ""));
  option->type_name(type);
  return DeclaredOption(option);
}

DeclaredOption Options::with(const std::string& name,
                             const std::function<void(const std::string& value)>& take,
                             const std::string& text, const Check& check) const {
  const auto take_last = [take](const std::vector<std::string>& texts) {
    take(texts.back());
    return true;
  };
  return declare(name, {take_last, [] { return std::string(); }}, text, check);
}

DeclaredOption Options::flag(const std::string& name, bool& value, const std::string& text) const {
  return DeclaredOption(command_.add_flag(name, value, text));
}

DeclaredOption Options::flag(const std::string& name, const std::function<void()>& when_given,
                             const std::string& text) const {
  return DeclaredOption(command_.add_flag_callback(name, when_given, text));
}

std::vector<GivenOption> given_options(const CLI::App& command) {
  std::vector<GivenOption> given;
  for (const CLI::Option* option : command.parse_order()) {
    GivenOption& each = given.emplace_back(GivenOption{option->get_name(), {}});
    const int most = option->get_items_expected_max();
    if (most > 0) each.values = option->results();
    if (most == 1) each.values = {each.values.back()};
  }
  return given;
}

CLI::App& add_subcommand(CLI::App& parent, const char* name, const char* description,
                         const std::function<void()>& run) {
  CLI::App& command = *parent.add_subcommand(name, description);
  command.callback([&command, run] {
    if (command.get_subcommands().empty()) run();
  });
  return command;
}

}  // namespace ringside::cli
