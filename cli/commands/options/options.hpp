// The options of a command, each declared in one call:
//
//     const Options option(*command);
//     option("-n,--ranks N", args->ranks, "Number of ranks, 1 to 64 [4]", in_range(1, 64));
//     option("--svg FILE", args->svg, "Draw the picture to this file");
//     option.flag("--list", args->list, "A table instead of the picture");
//
// A command with its arguments, and the function that runs it:
//
//     const Command<Arguments> option(app, "eval", "Evaluate a checkpoint", evaluate);
//     option("--init DIR", option.args->init, "The checkpoint's folder")->required();
#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/commands/options/option_checks.hpp"

namespace ringside::cli {

class Options {
 public:
  explicit Options(CLI::App& command) : command_(command) {}

  // All further options of the command stand under this heading in its help.
  void group(const std::string& heading) const { command_.option_defaults()->group(heading); }

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

template <class Arguments>
class Command : public Options {
 public:
  // `run` is called after the command line is read, unless it names a subcommand of this one.
  Command(CLI::App& parent, const char* name, const char* description,
          void (*run)(const Arguments& args))
      : Options(*parent.add_subcommand(name, description)) {
    command().callback([&command = command(), args = args, run] {
      if (command.get_subcommands().empty()) run(*args);
    });
  }

  const std::shared_ptr<Arguments> args = std::make_shared<Arguments>();
};

}  // namespace ringside::cli
