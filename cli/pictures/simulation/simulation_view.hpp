// What `ringside simulate --model ...` prints: the time of a step and what it is made of. Lines fit
// 80 columns.
#pragma once

#include <string>
#include <vector>

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/report/report.hpp"
#include "planning/simulation/simulation.hpp"

namespace ringside::cli {

std::string simulation_text(const planning::Simulation& simulation);

// Keys carry their unit.
Json simulation_json(const planning::Simulation& simulation);

// The tables of the text and of the page; without rows where there is nothing to say.
std::vector<Figure> simulation_tables(const planning::Simulation& simulation);

}  // namespace ringside::cli
