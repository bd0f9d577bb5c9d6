// Where the ranks of a job leave their flight records when it fails
// (collectives/diagnostics/flight_recorder.hpp), when the user has not said where.
//
// The launcher only thinks of a name; the first rank that has something to write makes the folder.
// So a job that ends well never makes one, and there is nothing to clean up if the launcher is
// killed.
#pragma once

#include <optional>
#include <string>

namespace ringside::cli {

class FlightFolder {
 public:
  // A name of its own in the folder for temporary files; none where RINGSIDE_FLIGHT_DIR names a
  // folder, unless it is an outer job's.
  FlightFolder();

  const std::optional<std::string>& path() const { return path_; }

  // At the end of the job. Removes the folder unless the job has failed or somebody has asked for
  // the records (SIGUSR1). Returns whether there are records to read.
  bool keep_or_remove(bool failed) const;

 private:
  std::optional<std::string> path_;
};

}  // namespace ringside::cli
