// `ringside postmortem DIR`: what the ranks of a failed job were doing, and who diverged or stopped
// where.
#include <memory>

#include "cli/command.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"

namespace ringside::cli {

void add_postmortem_command(CLI::App& app) {
  auto* command = app.add_subcommand(
      "postmortem",
      "Read the flight recorders of a failed job and say who diverged or stopped where");
  command->footer(
      "\nEvery rank keeps a record of its last calls. When a call fails, and when it gets SIGUSR1, "
      "it writes the record to a temporary folder\n"
      "that the launcher's last line names; or to DIR with RINGSIDE_FLIGHT_DIR=DIR in its "
      "environment:\n"
      "  RINGSIDE_FLIGHT_DIR=flights ringside train -n 4 ...\n"
      "  pkill -USR1 ringside                                     while it hangs\n"
      "  ringside postmortem flights");
  const auto folder = std::make_shared<std::string>();
  command->add_option("DIR", *folder, "The folder that RINGSIDE_FLIGHT_DIR named")->required();
  command->callback(
      [folder] { fmt::print("{}", collectives::postmortem(collectives::read_flights(*folder))); });
}

}  // namespace ringside::cli
