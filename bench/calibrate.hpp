// `ringside bench --calibrate`: measures the calls from which the costs of messages and sums on
// this machine follow (measured_costs.hpp), and reports the costs.
#pragma once

#include <array>
#include <string>

#include "bench/bench_options.hpp"
#include "cli/pictures/json_file.hpp"
#include "collectives/selection/calibration.hpp"

namespace ringside::cli {

// Changes `options` into one that measures these calls. Keeps the backends, and the largest
// number of ranks if any is given. Throws UsageError if these do not allow it.
void set_up_calibration(BenchOptions& options);

// The costs of each transport, from the measured rows.
collectives::CostTable costs_from_rows(const BenchOptions& options, const Json& rows,
                                       const std::array<double, 3>& adding);

// The costs as a table, with an explanation and the algorithms that they lead to.
std::string calibration_report(const collectives::CostTable& costs, int ranks);

}  // namespace ringside::cli
