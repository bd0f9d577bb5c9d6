// The folder for the flight records of a failed job (collectives/diagnostics/flight_recorder.hpp):
// the one that the user names in RINGSIDE_FLIGHT_DIR, or a temporary one.
//
// The launcher only chooses the name. The first rank that writes a record creates the folder. A job
// that ends well never creates it, so a killed launcher leaves nothing behind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/diagnostics/flight_recorder.hpp"

namespace ringside::cli {

class FlightFolder {
 public:
  // Chooses a new name in the folder for temporary files, unless the user has named a folder; a
  // value of RINGSIDE_FLIGHT_DIR inherited from an outer job does not count.
  FlightFolder();

  const std::string& path() const { return path_; }  // empty: there is nowhere to write
  std::string temporary() const { return is_users_ ? "" : path_; }

  // The heads of the records that ranks have written after a failure so far, in no order.
  std::vector<collectives::FlightHeader> failures() const;

  // At the end of the job: removes the temporary folder unless the job has failed or the user has
  // requested the records with SIGUSR1. Returns whether there are records to read.
  bool keep_or_remove(bool failed) const;

 private:
  // Those of this job: the user's folder may hold others.
  std::vector<collectives::FlightHeader> heads() const;

  std::string path_;
  bool is_users_ = false;
  std::int64_t began_ns_;  // as FlightHeader::written_ns
};

}  // namespace ringside::cli
