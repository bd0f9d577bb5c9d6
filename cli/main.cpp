// `ringside`: one program with a subcommand for each task.

#include <algorithm>
#include <csignal>
#include <exception>
#include <memory>
#include <string>

#include <unistd.h>

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/report/terminal.hpp"
#include "cli/views/help_formatter.hpp"

namespace ringside::cli {
namespace {

constexpr const char* about =
    R"(Ringside: distributed training from scratch, made to be read, stepped through
and measured.

Where to start:
  ringside step all_reduce -n 4      draw the ring all-reduce step by step
  ringside hello -n 4                run every collective once in four processes
  ringside train -n 4 --model tiny   train a small transformer in four processes

Help for a command: ringside COMMAND --help)";

// "ringside train" if the command line names the command train, else "ringside".
std::string command_so_far(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app.get_name() : app.get_name() + " " + commands.front()->get_name();
}

int usage_error(const CLI::App& app, const std::string& message) {
  fmt::print(stderr, "ringside: {}\nTry: {} --help\n", message, command_so_far(app));
  return 2;
}

int run(int argc, char** argv) {
  CLI::App app(about, "ringside");
  app.set_version_flag("--version", "ringside " RINGSIDE_VERSION);
  const int width = std::clamp(terminal_columns(STDOUT_FILENO).value_or(80), 60, 100);
  app.formatter(std::make_shared<HelpFormatter>(static_cast<std::size_t>(width), 28));
  app.require_subcommand(1);
  add_commands(app);
  try {
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
    const auto strays = app.remaining();
    if (app.get_subcommands().empty() && !strays.empty())
      return usage_error(app, fmt::format("there is no command \"{}\"", strays.front()));
    return usage_error(app, error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "ringside: {}\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace ringside::cli

int main(int argc, char** argv) {
  // Without a reader for its output, as after `| head`, the program ends silently. Restore the
  // default, because the parent process may ignore the signal.
  std::signal(SIGPIPE, SIG_DFL);
  return ringside::cli::run(argc, argv);
}
