// What `ringside simulate --model ...` prints: the time of a step and what it is made of. Lines fit
// 80 columns.
#pragma once

#include <string>

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/table.hpp"
#include "planning/simulation/simulation.hpp"

namespace ringside::cli {

std::string simulation_text(const planning::Simulation& simulation);

// Keys carry their unit.
Json simulation_json(const planning::Simulation& simulation);

// A table of the text and of the page.
struct SimulationTable {
  std::string title, caption;
  Table table;
};
SimulationTable ranks_table(const planning::Simulation& simulation);    // of each pipeline stage
SimulationTable exposed_table(const planning::Simulation& simulation);  // empty: none is exposed
SimulationTable loads_table(const planning::Simulation& simulation);    // of the links

}  // namespace ringside::cli
