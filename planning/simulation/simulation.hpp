// Simulation: how long a step of a plan takes on a machine that is not here, and what it waits for.
//
//     const Simulation s = simulate(model, plan, machine, options);
//     s.step, s.bubble, s.exposed, s.loads
//
// account() answers the same with closed formulas (engine 1). They agree where both apply: all
// stages take the same time, messages between them take none, and the data ranks' communication is
// hidden. Here (engine 2) stages may differ, a message may cross a slower network than another,
// ranks may be slow, and what hides behind what follows from the schedule. With
// options.congestion, transfers also slow each other down (engine 3).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planning/machine.hpp"
#include "planning/model.hpp"
#include "planning/plan.hpp"
#include "planning/simulation/longest_path.hpp"
#include "planning/simulation/stage_load.hpp"

namespace ringside::planning {

struct SimulationOptions {
  Stragglers stragglers;
  // Replicas that nothing distinguishes are computed once. Else every one, for comparison.
  bool fold = true;
  // What a trace has shown of each stage, instead of the formulas' times.
  std::vector<MeasuredStage> measured;
  // Messages and reductions share the links (engine 3, congestion.hpp). Every replica is computed.
  bool congestion = false;
};

// How much shorter a step would be if the communication along this axis took no time.
struct Exposed {
  std::string axis;
  double seconds = 0;
};

// What the links of one level carry for one axis, in one step.
struct LinkLoad {
  std::string level, axis;
  double bytes = 0;    // sent by the rank that sends most
  double seconds = 0;  // how long these bytes keep its link busy
};

struct Simulation {
  Model model;
  Plan plan;
  Machine machine;
  PlanLoad load;
  pipeline_parallel::Schedule lowered;
  std::vector<Replica> replicas;
  Timeline timeline;
  std::int64_t replicas_simulated = 0, replicas_in_all = 0;

  double step = 0;               // seconds
  double bubble = 0;             // share of the pipeline's time in which a rank is idle
  double optimizer = 0;          // seconds of the update, and of what ZeRO gathers after it
  double tokens = 0;             // of a step, over all ranks
  double utilization = 0;        // of the devices' peak, by the model's FLOPs
  double undisturbed = 0;        // the step without stragglers; 0: there are none
  std::vector<Exposed> exposed;  // axes of the mesh that communicate
  std::vector<LinkLoad> loads;

  double tokens_per_second() const { return tokens / step; }
};

// Throws Error if the plan is invalid, a straggler is no rank of the mesh, or the machine has fewer
// devices.
Simulation simulate(const Model& model, const Plan& plan, const Machine& machine,
                    const SimulationOptions& options = {});

// The durations of every stage of every replica of a plan; rank_of[s] is the pipeline rank of stage
// s. Replicas are folded if options.fold and nothing distinguishes them. `silent` is an axis whose
// communication takes no time, or "".
std::vector<Replica> replicas_of(const Plan& plan, const PlanLoad& load,
                                 const std::vector<int>& rank_of, const Machine& machine,
                                 const SimulationOptions& options, std::optional<Axis> silent);

}  // namespace ringside::planning
