// `ringside`: one program, a subcommand for each thing that it can do.

#include <csignal>
#include <exception>
#include <string>

#include <fmt/format.h>

#include "cli/command.hpp"

namespace ringside::cli {
namespace {

constexpr const char* about =
    "Ringside: distributed training from scratch, made to be read, stepped through and measured.\n"
    "\n"
    "Where to start:\n"
    "  ringside step all_reduce -n 4         the ring all-reduce, step by step, as one would draw "
    "it on a blackboard\n"
    "  ringside hello -n 4                   four processes on this machine, and every collective "
    "once\n"
    "  ringside train -n 4 --model tiny      four processes train a small transformer on real "
    "text\n"
    "\n"
    "Every command explains itself: ringside COMMAND --help";

void add_commands(CLI::App& app) {
  add_step_command(app);
  add_prove_command(app);
  add_hello_command(app);
  add_bench_command(app);
  add_train_command(app);
  add_generate_command(app);
  add_eval_command(app);
  add_tokenize_command(app);
  add_launch_command(app);
  add_postmortem_command(app);
}

// "ringside train" where the user had come as far as naming a command, else "ringside".
std::string named_so_far(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app.get_name() : app.get_name() + " " + commands.front()->get_name();
}

int usage_error(const CLI::App& app, const std::string& message) {
  fmt::print(stderr, "ringside: {}\nTry: {} --help\n", message, named_so_far(app));
  return 2;
}

int run(int argc, char** argv) {
  CLI::App app(about, "ringside");
  app.set_version_flag("--version", "ringside " RINGSIDE_VERSION);
  app.get_formatter()->column_width(34);
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
  // Who no longer finds a reader for its output ends without a word, as after `| head`; also where
  // whoever started us ignores the signal.
  std::signal(SIGPIPE, SIG_DFL);
  return ringside::cli::run(argc, argv);
}
