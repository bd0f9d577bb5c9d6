// The options of a command, each declared in one call:
//
//     const auto [option, args] = add_command(app, "draw", "Draw an algorithm", draw);
//     option("-n,--ranks N", args.ranks, "Number of ranks, 1 to 64 [4]", in_range(1, 64));
//     option("--svg FILE", args.svg, "Draw the picture to this file").required();
//     option.flag("--list", args.list, "A table instead of the picture");
//
// add_command() also makes the arguments, and calls `void draw(const Arguments&)` with them.
//
// CLI11 reads the command line. Its header takes seconds to compile, so only options.cpp and the
// rooms that print help include it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text/read_number.hpp"
#include "cli/options/cli11_names.hpp"
#include "cli/options/option_checks.hpp"

namespace ringside::cli {

// Where the values of an option go.
struct Destination {
  // Takes all texts that were given; false: one of them is no value of this type.
  std::function<bool(const std::vector<std::string>& texts)> take;
  std::function<std::string()> text;  // the value as it is, for the help
  bool many = false;                  // takes several values
};

// The text of one value as a value.
template <class T>
bool read_value(const std::string& text, T& value) {
  if constexpr (std::is_arithmetic_v<T>)
    return read_number(text, value);
  else
    value = T(text);
  return true;
}
template <class T>
bool read_value(const std::string& text, std::optional<T>& value) {
  return read_value(text, value.emplace());
}

template <class T>
std::string text_of_value(const T& value) {
  if constexpr (std::is_same_v<T, std::filesystem::path>)
    return value.string();
  else
    return fmt::format("{}", value);
}
template <class T>
std::string text_of_value(const std::optional<T>& value) {
  return value ? text_of_value(*value) : "";
}

template <class T>
Destination destination(T& value) {
  return {
      [&value](const std::vector<std::string>& texts) { return read_value(texts.back(), value); },
      [&value] { return text_of_value(value); }};
}
template <class T>
Destination destination(std::vector<T>& values) {
  const auto take = [&values](const std::vector<std::string>& texts) {
    values.clear();
    for (const std::string& text : texts)
      if (!read_value(text, values.emplace_back())) return false;
    return true;
  };
  const auto text = [&values] {
    std::vector<std::string> texts;
    for (const T& value : values) texts.push_back(text_of_value(value));
    return fmt::format("{}", fmt::join(texts, ","));
  };
  return {take, text, true};
}

// An option that was just declared, to say more about it.
class DeclaredOption {
 public:
  explicit DeclaredOption(CLI::Option* option) : option_(option) {}

  const DeclaredOption& required() const;
  const DeclaredOption& excludes(const DeclaredOption& other) const;
  const DeclaredOption& separated_by(char delimiter) const;  // its values
  const DeclaredOption& show_default() const;                // in the help
  const DeclaredOption& hide() const;                        // from the help

 private:
  CLI::Option* option_;
};

// An option as it was given on the command line.
struct GivenOption {
  std::string name;                 // "--ranks"
  std::vector<std::string> values;  // none: a flag
};

class Options {
 public:
  explicit Options(CLI::App& command) : command_(command) {}

  // All further options of the command stand under this heading in its help.
  void group(const std::string& heading) const;

  // The help of all further options, also of subcommands, shows their defaults.
  void show_defaults() const;

  // Of an option that is given several times, the last one counts. For all that are declared.
  void last_ones_count() const;

  // The help shows only these options, declared already; --help-all shows all. What stands below
  // the options is cut after the examples, which come first.
  void short_help(const std::vector<std::string>& names) const;

  // After a space, `name` has the name of the value in the help. "--bytes SIZE,..." is a list:
  // commas separate its values.
  template <class T>
  DeclaredOption operator()(const std::string& name, T& value, const std::string& text,
                            const Check& check = {}) const {
    return declare(name, destination(value), text, check);
  }
  DeclaredOption declare(const std::string& name, const Destination& destination,
                         const std::string& text, const Check& check = {}) const;

  // An option whose one value `take` receives.
  DeclaredOption with(const std::string& name,
                      const std::function<void(const std::string& value)>& take,
                      const std::string& text, const Check& check = {}) const;

  DeclaredOption flag(const std::string& name, bool& value, const std::string& text) const;
  DeclaredOption flag(const std::string& name, const std::function<void()>& when_given,
                      const std::string& text) const;

  CLI::App& command() const { return command_; }

 private:
  CLI::App& command_;
};

// The options of a command that were given, in their order; an option that was repeated stands
// there each time with all its values, or with the last one, where only that counts.
std::vector<GivenOption> given_options(const CLI::App& command);

// Adds a subcommand. `run` is called after the command line is read, unless it names a subcommand
// of this one.
CLI::App& add_subcommand(CLI::App& parent, const char* name, const char* description,
                         const std::function<void()>& run);

// A command and the arguments that its options fill.
template <class Arguments>
struct NewCommand {
  Options option;
  Arguments& args;
};

template <class Arguments>
NewCommand<Arguments> add_command(CLI::App& parent, const char* name, const char* description,
                                  void (*run)(const Arguments& args)) {
  const auto args = std::make_shared<Arguments>();
  return {Options(add_subcommand(parent, name, description, [args, run] { run(*args); })), *args};
}

}  // namespace ringside::cli
