// The options of a command, each declared in one call:
//
//     const auto [option, args] = add_command(app, "draw", "Draw an algorithm", draw);
//     option("-n,--ranks N", args.ranks, "Number of ranks, 1 to 64 [4]", in_range(1, 64));
//     option("--svg FILE", args.svg, "Draw the picture to this file")->required();
//     option.flag("--list", args.list, "A table instead of the picture");
//
// add_command() also makes the arguments, and calls `void draw(const Arguments&)` with them.
#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/options/option_checks.hpp"

namespace ringside::cli {

class Options {
 public:
  explicit Options(CLI::App& command) : command_(command) {}

  // All further options of the command stand under this heading in its help.
  void group(const std::string& heading) const { command_.option_defaults()->group(heading); }

  // The help of all further options, also of subcommands, shows their defaults.
  void show_defaults() const { command_.option_defaults()->always_capture_default(); }

  // After a space, `name` has the name of the value in the help. "--bytes SIZE,..." is a list:
  // commas separate its values.
  template <class T>
  CLI::Option* operator()(const std::string& name, T& value, const std::string& text) const {
    const std::size_t end = name.find(' ');
    const std::string type = end == std::string::npos ? "" : name.substr(end + 1);
    CLI::Option* const option = command_.add_option(name.substr(0, end), value, text);
    if (type.ends_with(",...")) option->delimiter(',');
    return option->type_name(type);
  }
  template <class T>
  CLI::Option* operator()(const std::string& name, T& value, const std::string& text,
                          const CLI::Validator& check) const {
    return (*this)(name, value, text)->check(check);
  }
  CLI::Option* flag(const std::string& name, bool& value, const std::string& text) const {
    return command_.add_flag(name, value, text);
  }
  CLI::App& command() const { return command_; }

 private:
  CLI::App& command_;
};

// A command and the arguments that its options fill.
template <class Arguments>
struct NewCommand {
  Options option;
  Arguments& args;
};

// `run` is called after the command line is read, unless it names a subcommand of this one.
template <class Arguments>
NewCommand<Arguments> add_command(CLI::App& parent, const char* name, const char* description,
                                  void (*run)(const Arguments& args)) {
  CLI::App& command = *parent.add_subcommand(name, description);
  const auto args = std::make_shared<Arguments>();
  command.callback([&command, args, run] {
    if (command.get_subcommands().empty()) run(*args);
  });
  return {Options(command), *args};
}

}  // namespace ringside::cli
