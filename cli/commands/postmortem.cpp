// `ringside postmortem DIR`: reads the flight records of a failed job. Those of PyTorch are read by
// the Python package, which calls this command again with what it has read.

#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/program/other_programs.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"

namespace ringside::cli {
namespace {

void print_postmortem(const std::string& path) {
  if (std::filesystem::is_directory(path) && !collectives::has_flights(path))
    become_python("postmortem");
  std::string left_out;
  const auto flights = collectives::read_flights(path, &left_out);
  fmt::print("{}{}", collectives::postmortem(flights), left_out);
}

}  // namespace

void add_postmortem_command(CLI::App& app) {
  const auto [option, args] = add_command(
      app, "postmortem", "Read the flight records of a failed job: which rank stopped where",
      print_postmortem);
  option("DIR", args, "The folder with the flight records, or a JSON file of them").required();
}

}  // namespace ringside::cli
