// A simulated step in the form of a recorded one, so that the same lanes are drawn and the same
// trace files are written.
#pragma once

#include <vector>

#include "base/trace/rank_trace.hpp"
#include "cli/pictures/pipeline/pipeline_picture.hpp"
#include "planning/simulation/simulation.hpp"

namespace ringside::cli {

// One trace for each pipeline rank: of the replica whose ranks compute longest, first tensor rank.
// Communication within a computation is drawn as a wait at its end.
std::vector<RankTrace> simulated_traces(const planning::Simulation& simulation);

// The same replica as a pipeline, for svg_of_pipeline().
TimedSchedule timed_schedule(const planning::Simulation& simulation);

}  // namespace ringside::cli
