// What `ringside simulate --model ...` says: the time of a step and what it is made of. The same
// for the terminal, for the page and for other programs.
#pragma once

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/report/report.hpp"
#include "planning/simulation/simulation.hpp"

namespace ringside::cli {

Report simulation_report(const planning::Simulation& simulation);

// What the ranks do over time; of many ranks, some. The page shows it first.
Figure simulation_lanes(const planning::Simulation& simulation);

// Keys carry their unit.
Json simulation_json(const planning::Simulation& simulation);

}  // namespace ringside::cli
