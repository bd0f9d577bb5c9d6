// `ringside bench mesh --predict`: the simulated time of a step on this machine, from rates that
// are measured here, beside the measured time.
#pragma once

#include <string>
#include <vector>

#include "cli/pictures/json_file.hpp"
#include "collectives/process_group.hpp"
#include "planning/machine.hpp"
#include "planning/model.hpp"
#include "planning/plan.hpp"

namespace ringside::cli {

// What a rank of this machine does while all others do the same: they share cores, caches and
// memory bandwidth, as in a step.
struct MachineRates {
  double products = 0;   // FLOP/s of the matrix products of a block, forward and backward
  double update = 0;     // bytes per second of clipping and AdamW
  double latency = 0;    // seconds of a small message
  double bandwidth = 0;  // bytes per second of a ring all-reduce as large as the plan's calls
};

// The median of a few runs on the slowest rank. Every rank must call it; takes about a second.
MachineRates measure_rates(collectives::ProcessGroup& world, const planning::Model& model,
                           const planning::Plan& plan);

// The better one of each rate: other work on the machine only slows a measurement.
MachineRates faster_of(const MachineRates& a, const MachineRates& b);

// `overlap`: planning/machine.hpp.
planning::Machine machine_of(const MachineRates& rates, int ranks, double overlap);

struct Prediction {
  std::string mesh;
  MachineRates rates;
  double predicted = 0, measured = 0;  // seconds of a step
};

// At most 80 columns.
std::string prediction_table(const std::vector<Prediction>& all);
Json prediction_json(const std::vector<Prediction>& all);  // an object for each

}  // namespace ringside::cli
