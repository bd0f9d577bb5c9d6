// The page of `ringside simulate --html` for a plan.
#pragma once

#include "cli/pictures/report/report.hpp"
#include "planning/simulation/simulation.hpp"

namespace ringside::cli {

Report simulation_page(const planning::Simulation& simulation);

}  // namespace ringside::cli
