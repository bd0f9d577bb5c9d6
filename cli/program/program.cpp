#include "cli/program/program.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/text/words.hpp"
#include "cli/launcher/library_environment.hpp"
#include "cli/launcher/ranks.hpp"
#include "cli/options/command.hpp"
#include "cli/options/help_formatter.hpp"
#include "cli/options/option_checks.hpp"
#include "cli/pictures/terminal.hpp"
#include "cli/program/other_programs.hpp"
#include "training/matrix_libraries.hpp"

namespace ringside::cli {
namespace {

constexpr const char* about =
    R"(Ringside: distributed training from scratch, made to be read, stepped through
and measured.

Where to start:
  ringside step all_reduce -n 4      draw the ring all-reduce step by step
  ringside hello -n 4                run every collective once in four processes
  ringside train -n 4 --model tiny   train a small transformer in four processes

Help for a command: ringside help COMMAND)";

#ifdef RINGSIDE_COMMIT
constexpr const char* version = "ringside " RINGSIDE_VERSION " (" RINGSIDE_COMMIT ")";
#else
constexpr const char* version = "ringside " RINGSIDE_VERSION;
#endif

// "ringside train" if the command line names the command train, else "ringside".
std::string command_so_far(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app.get_name() : app.get_name() + " " + commands.front()->get_name();
}

int usage_error(const CLI::App& app, const std::string& message) {
  if (another_rank_reports()) return 2;
  fmt::print(stderr, "ringside: {}\nTry: {} --help\n", message, command_so_far(app));
  return 2;
}

const CLI::App& deepest_command(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app : deepest_command(*commands.front());
}

// What is wrong with the first argument that no command and no option took.
std::string about_stray(const CLI::App& app, const std::vector<std::string>& strays) {
  std::vector<std::string> names;
  if (app.get_subcommands().empty()) {
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(command->get_name());
    return fmt::format("there is no command '{}'{}", strays.front(),
                       did_you_mean(strays.front(), names));
  }
  // A wrong option leaves its value behind, too: the option is what to mend.
  const auto option = std::ranges::find_if(
      strays, [](const std::string& stray) { return stray.size() > 1 && stray.starts_with('-'); });
  if (option == strays.end()) return fmt::format("'{}' is one argument too many", strays.front());
  for (const CLI::Option* known : deepest_command(app).get_options())
    for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
  return fmt::format("there is no option {}{}", *option, did_you_mean(*option, names));
}

// What is wrong with the value of an option, where CLI11 names only its own types.
std::string about_value(const CLI::App& app, const CLI::ParseError& error) {
  const std::string message = error.what();
  for (const CLI::Option* option : deepest_command(app).get_options()) {
    const std::string name = option->get_name();
    if (message.starts_with("Could not convert: " + name + " = "))
      return fmt::format("{}: {}", name, what_is_no_number(option->results()));
    if (message.starts_with(name + ": ") && message.ends_with(" missing"))
      return fmt::format("{} needs a value: {}", name, option->get_type_name());
    if (message.starts_with(name + ": At Most "))
      return fmt::format("{} takes one value, not {}", name, option->count());
  }
  return message;
}

int run(int argc, char** argv) {
  CLI::App app(about, "ringside");
  app.set_version_flag("--version", version, "Print the version and the commit, and exit");
  const int width = std::clamp(terminal_columns(STDOUT_FILENO).value_or(80), 60, 100);
  app.formatter(std::make_shared<HelpFormatter>(static_cast<std::size_t>(width), 28));
  app.require_subcommand(1);
  add_commands(app);
  try {
    const std::string_view first = argc == 1 ? "--help" : argv[1];
    become_program_with(first);
    if (first == "--help" || first == "-h") describe_other_commands(app);
    if (argc == 1) throw CLI::CallForHelp();
    app.parse(argc, argv);
    return 0;
  } catch (const Exit& exit) {
    return exit.code;
  } catch (const UsageError& error) {
    return usage_error(app, error.what());
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    const auto strays = app.remaining(true);
    const bool because_of_them =
        app.get_subcommands().empty() || dynamic_cast<const CLI::ExtrasError*>(&error);
    return usage_error(app, because_of_them && !strays.empty() ? about_stray(app, strays)
                                                               : about_value(app, error));
  } catch (const std::bad_alloc&) {
    fmt::print(stderr,
               "ringside: out of memory: take a smaller model, batch or buffer, or fewer ranks, or "
               "raise the limit (ulimit -v)\n");
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "ringside: {}\n", error.what());
    return 1;
  }
}

// What is still in the buffer of stdout must reach its file: a full disk is a failure of any
// command. Returns the exit code.
int flush_output(int code) {
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return code;
  fmt::print(stderr, "ringside: cannot write to standard output: is the disk full?\n");
  return code == 0 ? 1 : code;
}

}  // namespace

void add_other_command(CLI::App& ringside, const char* name) {
  ringside.add_subcommand(name);
}

void set_notes(CLI::App& app, const char* subcommand, const char* notes) {
  app.get_subcommand(subcommand)->footer(notes);
}

int run_program(int argc, char** argv) {
  // Without a reader for its output, as after `| head`, the program ends silently. Restore the
  // default, because the parent process may ignore the signal.
  std::signal(SIGPIPE, SIG_DFL);
  for (const std::string_view command : {"train", "generate", "eval", "bench"})
    if (argc > 1 && argv[1] == command && program_of(command).empty())
      set_environment_of_libraries(training::kernel_to_ask_for());
  return flush_output(run(argc, argv));
}

}  // namespace ringside::cli
