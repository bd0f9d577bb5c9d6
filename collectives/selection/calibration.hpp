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

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "collectives/selection/cost_model.hpp"
#include "collectives/transport/link.hpp"

namespace ringside::collectives {

// The costs of a machine, by transport.
using CostTable = std::map<std::string, MachineCosts, std::less<>>;

// What the file has for this machine.
struct Calibration {
  CostTable costs;    // of the transports that were measured
  std::string fault;  // what is wrong with the file: what is invalid counts as missing
};

// Measured on a machine with two cores, over its loopback interface and memory
// (docs/performance.md); `cores` is the number of this machine. An unknown transport gets the
// values of tcp.
MachineCosts built_in_costs(std::string_view transport);

Calibration calibration_here();

// Says on stderr that the file is invalid, if it is; once in a process.
void warn_of_fault(const Calibration& calibration);

// A number by which ranks compare what they have measured; 0 if that is nothing.
std::uint32_t checksum_of(const CostTable& measured);

// The costs of a transport: the measured ones, otherwise those that are built in.
MachineCosts costs_of(std::string_view transport, const CostTable& measured);

// The same on this machine, with the warning.
MachineCosts costs_here(std::string_view transport);

// The costs behind an emulated link: each message costs its latency more, and each byte its rate.
// Corrections are for a machine without a link.
MachineCosts behind_link(MachineCosts costs, const Link& link);

// Writes the costs of this machine into the file; entries of other machines and transports stay.
// The file is replaced atomically. Throws Error if it cannot be written.
void keep_calibration(const CostTable& measured);

}  // namespace ringside::collectives
