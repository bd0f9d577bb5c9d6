// The temporary folder for the flight records of a failed job
// (collectives/diagnostics/flight_recorder.hpp).
//
// The launcher only chooses the name. The first rank that writes a record creates the folder. A job
// that ends well never creates it, so a killed launcher leaves nothing behind.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/diagnostics/flight_recorder.hpp"

namespace ringside::cli {

class FlightFolder {
 public:
  // Chooses a new name in the folder for temporary files. Chooses none if the user has set
  // RINGSIDE_FLIGHT_DIR; a value inherited from an outer job does not count.
  FlightFolder();

  const std::optional<std::string>& path() const { return path_; }

  // The heads of the records that ranks have written after a failure so far, in no order.
  std::vector<collectives::FlightHeader> failures() const;

  // At the end of the job: removes the folder unless the job has failed or the user has requested
  // the records with SIGUSR1. Returns whether there are records to read.
  bool keep_or_remove(bool failed) const;

 private:
  std::optional<std::string> path_;
};

}  // namespace ringside::cli
