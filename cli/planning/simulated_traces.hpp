// A simulated step in the form of a recorded one, so that the same lanes are drawn, the same trace
// files are written, and predicted stands beside measured.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/report/json_file.hpp"
#include "cli/report/trace_file.hpp"
#include "cli/views/pipeline_picture.hpp"
#include "planning/simulation/simulation.hpp"

namespace ringside::cli {

// One trace for each pipeline rank: of the replica whose ranks compute longest, first tensor rank.
// Communication within a computation is drawn as a wait at its end.
std::vector<RankTrace> simulated_traces(const planning::Simulation& simulation);

// The same replica as a pipeline with times in ms, for svg_of_pipeline().
TimedSchedule timed_schedule(const planning::Simulation& simulation);

// A trace file of `ringside train --trace`. Throws Error with the place of what is missing.
std::vector<RankTrace> read_traces(const std::filesystem::path& path);

// Seconds of one step of a trace: the mean over its ranks and recorded steps.
struct StepParts {
  double step = 0, forward = 0, backward = 0, update = 0;
  double waits = 0;  // for communication, wherever
};
StepParts step_parts(const std::vector<RankTrace>& ranks);

// Predicted beside measured.
std::string comparison_text(const StepParts& predicted, const StepParts& measured);
Json comparison_json(const StepParts& predicted, const StepParts& measured);

}  // namespace ringside::cli
