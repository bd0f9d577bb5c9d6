// `ringside bench --calibrate`: from a few measured calls to what messages and sums cost here
// (collectives/selection/cost_model.hpp).
//
// Measured are two all_gathers, of a few bytes and of many, through the very executor and transport
// that the costs are to speak of: the ring, in which every message is waited for, and the direct
// exchange, in which none waits for another; each between 2 ranks and between more ranks than
// cores. Every cost is read off the call in which it decides:
//
//     2 ranks, few bytes          alpha                             one message each way, a core for each
//     p ranks, few, direct        p (p-1) 2 overhead / cores        nothing to wait for: the cores are busy with messages
//     p ranks, few, ring          (p-1) (alpha + turn (p/cores-1))  nothing to do but wait
//     2 ranks, many bytes         alpha + beta b                    b bytes each way
//     p ranks, many, ring         2 copy * all bytes / cores        more than with few bytes: the cores are busy with copying
//
// Many bytes are measured three times, with buffers that lie nearer to and farther from the cores
// (MachineCosts).
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "cli/bench/plan.hpp"
#include "cli/report/json_file.hpp"
#include "collectives/selection/cost_model.hpp"

namespace ringside::cli {

// Seconds of the calls above. "Many" has an element for each of MachineCosts::lengths.
struct CalibrationTimes {
  int ranks = 0;
  double pair_few = 0;    // 2 ranks
  double ring_few = 0;    // `ranks` ranks
  double direct_few = 0;  // likewise
  std::array<double, 3> pair_many{}, ring_many{};
};

// alpha, turn, overhead, beta and copy. Times that contradict each other, as those of a busy
// machine may, give none that is negative.
collectives::MachineCosts solve_costs(const CalibrationTimes& times, int cores);

// Makes `plan`, of which --backends and, where `ranks_given`, -n are kept, one that measures what
// is needed. Throws UsageError where that cannot be.
void plan_calibration(BenchPlan& plan, bool ranks_given);

// Seconds for each byte of a buffer that is added to another, for each of MachineCosts::lengths.
std::array<double, 3> measure_adding();

// From the rows that were measured to what is kept: by transport.
std::map<std::string, collectives::MachineCosts> costs_from_rows(
    const BenchPlan& plan, const std::vector<Json>& rows, const std::array<double, 3>& adding);

// What has been found, as a table with a word on what it means and which algorithms follow from it.
std::string calibration_report(const std::map<std::string, collectives::MachineCosts>& costs,
                               int ranks);

}  // namespace ringside::cli
