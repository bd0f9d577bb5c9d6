// `ringside bench --calibrate`: from a few measured calls to what messages and sums cost here (collectives/cost_model.hpp).
//
// Measured are two all_gathers, of a few bytes and of many, through the very executor and transport that the costs are to speak of: the
// ring, in which every message is waited for, and the direct exchange, in which none waits for another; each between 2 ranks and between
// more ranks than cores. Every cost is read off the call in which it decides:
//
//     2 ranks, few bytes          alpha                             one message each way, a core for each
//     p ranks, few, direct        p (p-1) 2 overhead / cores        nothing to wait for: the cores are busy with messages
//     p ranks, few, ring          (p-1) (alpha + turn (p/cores-1))  nothing to do but wait
//     2 ranks, many bytes         alpha + beta b
//     p ranks, many, ring         2 copy * all bytes / cores        the cores are busy with copying
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/bench_plan.hpp"
#include "cli/json_file.hpp"
#include "collectives/cost_model.hpp"

namespace ringside::cli {

// Seconds of the calls above; b is half of `many`.
struct CalibrationTimes {
  double pair_few = 0, pair_many = 0;                     // 2 ranks
  double ring_few = 0, direct_few = 0, ring_many = 0;     // `ranks` ranks
  int ranks = 0;
  std::uint64_t many = 0;  // bytes of the whole buffer
};

// alpha, turn, overhead, beta and copy. Times that contradict each other, as those of a busy machine may, give none that is negative.
collectives::CostParameters solve_costs(const CalibrationTimes& times, int cores);

// Makes `plan`, of which --backends and, where `ranks_given`, -n are kept, one that measures what is needed. Throws UsageError where that
// cannot be.
void plan_calibration(BenchPlan& plan, bool ranks_given);

// Seconds for each byte that is added to another, both in cache and both in memory.
struct AddCosts {
  double in_cache = 0, in_memory = 0;
};
AddCosts measure_adding();

// From the rows that were measured to what is kept: by transport.
std::map<std::string, collectives::CostParameters> costs_from_rows(const BenchPlan& plan, const std::vector<Json>& rows,
                                                                   const AddCosts& adding);

// What has been found, as a table with a word on what it means and which algorithms follow from it.
std::string calibration_report(const std::map<std::string, collectives::CostParameters>& costs, const AddCosts& adding, int ranks);

}  // namespace ringside::cli
