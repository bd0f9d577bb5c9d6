// What `ringside simulate --model ...` prints: the time of a step and what it is made of. Lines fit
// 80 columns.
#pragma once

#include <string>

#include "cli/report/json_file.hpp"
#include "planning/simulation/simulation.hpp"

namespace ringside::cli {

std::string simulation_text(const planning::Simulation& simulation);

// Keys carry their unit.
Json simulation_json(const planning::Simulation& simulation);

// What the ranks of one pipeline rank do in a step, in seconds; the mean over the replicas.
struct PipelineRankTimes {
  double computing = 0;  // with tensor-parallel calls and exposed gathers
  double idle = 0;       // until the last computation on any rank
  double reducing = 0;   // from then on, until all gradients are reduced
};
PipelineRankTimes times_of_rank(const planning::Simulation& simulation, int pipeline_rank);

}  // namespace ringside::cli
