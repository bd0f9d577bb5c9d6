// The file in which `ringside bench --calibrate` keeps what it has measured: JSON with a list of
// entries. Each entry names its host and the number of its cores, so that several machines can
// share a home folder:
//
//     {"entries": [{"transport": "tcp", "host": "lab3", "cores": 2, "alpha_us": 24.1, ...},
//                  {"products": "fp32", "host": "lab3", "cores": 2, ...}]}
#pragma once

#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace ringside::collectives {

using CalibrationEntry = Json;

// $XDG_CACHE_HOME/ringside/calibration.json, or ~/.cache/ringside/calibration.json; empty if
// neither XDG_CACHE_HOME nor HOME is set.
std::filesystem::path calibration_file();

// `what`, for example {"transport": "tcp"}, with the name of this host and the number of its cores.
// Such a key identifies an entry, which has these values and more.
CalibrationEntry calibration_key(CalibrationEntry what);

// The entry with that key; nothing if there is none, or no file. Throws if the file is invalid.
std::optional<CalibrationEntry> find_calibration(const CalibrationEntry& key);

// What is kept under a key.
struct CalibrationRecord {
  CalibrationEntry key, entry;
};

// Writes entries into the file, in the place of those with the same keys; all others stay. The file
// is replaced atomically. Throws Error if it cannot be written.
void keep_in_calibration(const std::vector<CalibrationRecord>& records);

// What is wrong with the file, by what find_calibration() threw, or reading the entry.
std::string fault_of_calibration(const std::exception& error);

// Says on stderr that the file is invalid and why, and that this machine counts as not calibrated;
// once in a process, whoever reads the file first: the group its costs, or the libraries their
// speeds.
void warn_of_invalid_calibration(const std::string& fault);

}  // namespace ringside::collectives
