// `ringside bench --calibrate`: measures the calls from which the costs of messages and sums on
// this machine follow (measured_costs.hpp), and reports the costs.
// `ringside bench COLLECTIVE --calibrate` measures its algorithms instead, and corrects what the
// model misses of each (Correction, cost_model.hpp).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "bench/bench_options.hpp"
#include "cli/pictures/json_file.hpp"
#include "collectives/selection/calibration.hpp"

namespace ringside::cli {

// Changes `options` into one that measures these calls. Keeps the backends, and the largest
// number of ranks if any is given. Throws UsageError if these do not allow it.
void set_up_calibration(BenchOptions& options);

// Likewise for the algorithms of a collective. Keeps the numbers of ranks if any are given.
void set_up_corrections(BenchOptions& options, collectives::Collective collective);

// The costs of each transport, from the measured rows.
collectives::CostTable costs_from_rows(const BenchOptions& options, const Json& rows,
                                       const std::array<double, 3>& adding);

// The costs of this machine with the corrections of the measured algorithms; those of others stay.
collectives::CostTable corrected_by_rows(const BenchOptions& options, const Json& rows);

// The corrections of the measured algorithms as a table.
std::string corrections_report(const BenchOptions& options, const collectives::CostTable& costs);

// The costs as a table, with an explanation and the algorithms that they lead to.
std::string calibration_report(const collectives::CostTable& costs, int ranks);

}  // namespace ringside::cli
