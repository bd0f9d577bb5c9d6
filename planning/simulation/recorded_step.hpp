// What a trace of `ringside train --trace` says of a step: its parts, for predicted beside
// measured, and how long each stage computes, for a simulation with another schedule or network.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/trace/rank_trace.hpp"
#include "planning/simulation/stage_load.hpp"

namespace ringside::planning {

// A trace file of `ringside train --trace`. Throws Error with the place of what is missing.
std::vector<RankTrace> read_traces(const std::filesystem::path& path);

// Seconds of one step of a trace: the mean over its ranks and recorded steps of "step", "forward",
// "backward", "update" and "waits" (for communication, wherever).
using StepParts = std::map<std::string, double>;
StepParts step_parts(const std::vector<RankTrace>& ranks);

// The computations of each stage: means over ranks, micro-batches and steps, without the waits
// within them. A run without a pipeline has one stage. Throws Error if a stage has no forward or no
// backward.
std::vector<MeasuredStage> stages_of_trace(const std::vector<RankTrace>& ranks);

}  // namespace ringside::planning
