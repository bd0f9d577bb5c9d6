// What messages and sums cost on this machine. `ringside bench --calibrate` measures it and writes
// a file into the user's cache folder; without a measurement there are built-in values.
//
// An entry of the file (calibration_file.hpp), one for each transport:
//
//     {"transport": "tcp", "host": "lab3", "cores": 2,
//      "alpha_us": 24.1, "turn_us": 6.2, "overhead_us": 5.1,
//      "buffer_bytes": [64000, 1000000, 16000000], "beta_ns_per_byte": [0.1, 0.2, 0.4],
//      "copy_ns_per_byte": [...], "gamma_ns_per_byte": [...],
//      "corrected_bytes": [1000, ...],
//      "corrections": [{"collective": "all_reduce", "algorithm": "ring", "ranks": 4,
//                       "measured_over_walked": [1.2, ...]}]}
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/bootstrap/connections.hpp"
#include "collectives/execution/executor_options.hpp"
#include "collectives/selection/algorithm_selection.hpp"
#include "collectives/selection/cost_model.hpp"
#include "collectives/transport/link.hpp"

namespace ringside::collectives {

// Measured on a machine with two cores, over its loopback interface and memory
// (docs/performance.md); `cores` is the number of this machine. An unknown transport gets the
// values of tcp.
MachineCosts built_in_costs(std::string_view transport);

// The measured costs of this machine, otherwise the built-in ones. A file with invalid content
// counts as missing; the process warns about it once. Behind an emulated link, each message costs
// its latency more, and each byte its rate. `hosts` such machines share the ranks. Corrections are
// for one machine without such a link.
MachineCosts costs_here(std::string_view transport, const std::optional<Link>& link = {},
                        int hosts = 1);

// Writes the costs of this machine, by transport, into the file; entries of other machines and
// transports stay. The file is replaced atomically. Throws Error if it cannot be written.
void keep_calibration(const std::map<std::string, MachineCosts>& measured);

// Returns `algorithms` with the costs of rank 0: calibration files may differ between hosts, but
// the selection must not. Rank 0 uses the costs in `algorithms` if there are some, otherwise
// costs_here(..., link, hosts). Every rank calls this when the transport has just been connected.
// It broadcasts a few numbers and does not count as a call of the group.
AlgorithmSelection agree_on_costs(Connections& connections, const ExecutorOptions& executor,
                                  AlgorithmSelection algorithms, const std::optional<Link>& link,
                                  int hosts);

}  // namespace ringside::collectives
