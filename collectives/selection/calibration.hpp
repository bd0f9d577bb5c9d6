// What messages and sums cost on this machine: measured by `ringside bench --calibrate` and kept in
// the user's cache folder, or, where nobody has measured, the values built in.
//
// The file is JSON, one entry for each transport, host name and number of cores, so that a home
// folder may be shared by many machines:
//
//     {"entries": [{"transport": "tcp", "host": "lab3", "cores": 2, "alpha_us": 24.1, "turn_us": 6.2, "overhead_us": 5.1,
//                   "buffer_bytes": [64000, 1000000, 16000000], "beta_ns_per_byte": [0.1, 0.2, 0.4], "copy_ns_per_byte": [...],
//                   "gamma_ns_per_byte": [...]}]}
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "collectives/bootstrap/connections.hpp"
#include "collectives/execution/executor.hpp"
#include "collectives/selection/algorithm_selection.hpp"
#include "collectives/selection/cost_model.hpp"

namespace ringside::collectives {

// $XDG_CACHE_HOME/ringside/calibration.json, or ~/.cache/ringside/calibration.json; empty where
// neither variable is set.
std::filesystem::path calibration_file();

// Measured on a machine with two cores over its own loopback and memory (docs/performance.md), for
// a machine with as many cores as this. Of an unknown transport, what holds for tcp.
MachineCosts built_in_costs(std::string_view transport);

// What has been measured on this machine, otherwise the values built in. A file that cannot be read
// as one says so in a warning, once for each process, and counts as none.
MachineCosts costs_here(std::string_view transport);

// Keeps these measurements, by transport, for this machine, beside what the file has from other
// machines and transports. Written beside the file, which it replaces when it is whole. Throws
// Error where it cannot be written.
void keep_calibration(const std::map<std::string, MachineCosts>& measured);

// `algorithms`, choosing by what rank 0 knows of this transport: files may differ from host to
// host, choices may not. Every rank calls it when the transport has just been connected; it is a
// broadcast of a few numbers, and no call of the group. Where `algorithms` has costs already, rank
// 0's are taken from there.
AlgorithmSelection agree_on_costs(Connections& connections, const ExecutorOptions& executor,
                                  AlgorithmSelection algorithms, int hosts = 1);

}  // namespace ringside::collectives
