// `ringside postmortem DIR`: reads the flight records of a failed job.

#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"

namespace ringside::cli {
namespace {

void print_postmortem(const std::string& folder) {
  fmt::print("{}", collectives::postmortem(collectives::read_flights(folder)));
}

}  // namespace

void add_postmortem_command(CLI::App& app) {
  const auto [option, args] = add_command(
      app, "postmortem", "Read the flight records of a failed job: which rank stopped where",
      print_postmortem);
  option("DIR", args, "The folder with the flight records")->required();
}

}  // namespace ringside::cli
