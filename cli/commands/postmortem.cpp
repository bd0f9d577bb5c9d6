// `ringside postmortem DIR`: reads the flight records of a failed job.
#include <memory>

#include "cli/command.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"

namespace ringside::cli {
namespace {

constexpr const char* more = R"(
Every rank records its last calls. It writes the record when a call fails or
when it receives SIGUSR1: to a temporary folder, which the launcher's last line
names, or to the folder in RINGSIDE_FLIGHT_DIR.

Example:
  RINGSIDE_FLIGHT_DIR=flights ringside train -n 4 ...
  pkill -USR1 ringside              in another terminal, while the job hangs
  ringside postmortem flights)";

}  // namespace

void add_postmortem_command(CLI::App& app) {
  auto* command =
      app.add_subcommand("postmortem",
                         "Read the flight records of a failed job: which rank stopped where")
          ->footer(more);
  const auto folder = std::make_shared<std::string>();
  command->add_option("DIR", *folder, "The folder with the flight records")
      ->required()
      ->type_name("");
  command->callback(
      [folder] { fmt::print("{}", collectives::postmortem(collectives::read_flights(*folder))); });
}

}  // namespace ringside::cli
