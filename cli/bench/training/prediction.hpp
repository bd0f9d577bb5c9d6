// `ringside bench mesh --predict`: the simulated time of a step on this machine, from rates that
// are measured here, beside the measured time. And this machine as a file for simulations of
// others.
#pragma once

#include <string>
#include <vector>

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/table.hpp"
#include "collectives/process_group.hpp"
#include "planning/machine.hpp"
#include "planning/model.hpp"
#include "planning/plan.hpp"
#include "planning/simulation/stage_load.hpp"

namespace ringside::cli {

// One micro-batch through a part of the model, in the shapes that the plan gives it, in seconds.
struct PartSeconds {
  double forward = 0, backward = 0;
  double sums = 0;  // more of backward if it adds to the gradients of an earlier micro-batch
};

// What a rank of this machine does while all others do the same: they share cores, caches and
// memory bandwidth, as in a step.
struct MachineRates {
  PartSeconds block, embedding, head;
  double products = 0;   // FLOP/s in a block, forward and backward
  double update = 0;     // bytes per second of clipping and AdamW
  double latency = 0;    // seconds of a small message
  double bandwidth = 0;  // bytes per second of a ring all-reduce as large as the plan's calls
};

// The median of a few runs on the slowest rank. `model` is one of transformer/. Every rank must
// call it; takes a few times as long as a step.
MachineRates measure_rates(collectives::ProcessGroup& world, const planning::Model& model,
                           const planning::Plan& plan);

// The better one of each rate: other work on the machine only slows a measurement.
MachineRates faster_of(const MachineRates& a, const MachineRates& b);

// `overlap`: planning/machine.hpp.
planning::Machine machine_of(const MachineRates& rates, int ranks, double overlap);

// Every stage of the plan, from its parts.
std::vector<planning::MeasuredStage> stages_of(const MachineRates& rates,
                                               const planning::Model& model,
                                               const planning::Plan& plan);

struct Prediction {
  std::string mesh;
  MachineRates rates;
  double predicted = 0, measured = 0;  // seconds of a step
};

// A file as planning/machine.hpp describes it, of ranks with one thread each: products by width,
// the cost of a kernel and the rate of updates, measured while all ranks of `world` do the same;
// and messages that take alpha seconds and beta for each byte over `transport`. Every rank must
// call it.
Json machine_file(collectives::ProcessGroup& world, const std::string& transport, double alpha,
                  double beta);

// At most 80 columns.
Table prediction_table(const std::vector<Prediction>& all);

}  // namespace ringside::cli
