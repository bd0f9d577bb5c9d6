// Account: what a plan needs in memory, sends, computes and takes, with every formula that led
// there.
#pragma once

#include <string>
#include <vector>

#include "planning/machine.hpp"
#include "planning/memory.hpp"
#include "planning/model.hpp"
#include "planning/plan.hpp"
#include "planning/quantity.hpp"

namespace ringside::planning {

// The formulas of one subject, in the order in which one derives them.
struct Section {
  std::string title;
  std::vector<Term> terms;
};

// What one rank of the busiest stage sends along one axis in one step.
struct AxisTraffic {
  std::string axis, what;  // "tp", "all-reduce of activations"
  std::string level;       // the network that carries it
  double calls = 0, bytes = 0;
  double seconds = 0, hidden = 0;
  double exposed() const { return seconds - hidden; }
};

// A part of the step's time on the busiest stage.
struct TimeRow {
  std::string part;  // "matrix products"
  double seconds = 0;
};

struct Account {
  Model model;
  Plan plan;
  Machine machine;
  double parameters = 0;
  double active_parameters = 0;    // of a token, in a model with experts; otherwise 0
  double state_bytes = 0;          // parameters, gradients, masters and moments of the whole model
  std::vector<RankMemory> stages;  // the first, one in the middle, and the last

  // The rest is empty if the model's blocks are unknown (Model::has_blocks).
  std::int64_t busiest = 0;  // the coordinate along pp of the rank whose traffic and time follow
  std::vector<AxisTraffic> traffic;
  std::vector<TimeRow> time;
  double tokens = 0;  // of a step, over all ranks
  double model_flops = 0, hardware_flops = 0;
  double bubble_share = 0, step_seconds = 0, utilization = 0;

  std::vector<Section> derivation;

  double most_memory() const;  // of a rank, in bytes
  bool fits() const { return most_memory() <= machine.memory; }
  // The largest part of the step's time.
  const TimeRow& binds() const;
};

// Throws Error if the plan is invalid, or needs more devices than the machine has.
Account account(const Model& model, const Plan& plan, const Machine& machine);

}  // namespace ringside::planning
