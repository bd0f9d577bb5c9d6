// Durations: how long one computation of a stage takes, on the slowest rank of its unit.
#pragma once

#include <algorithm>

#include "parallel/pipeline/schedule.hpp"
#include "planning/simulation/longest_path.hpp"

namespace ringside::planning {

// Seconds of computing, which a slow rank prolongs, and of communication within it that computing
// does not hide.
struct ActionSeconds {
  double computing = 0, exposed = 0;
};

// What computing does not hide of the calls, if a block computes for `block` seconds.
inline double exposed_behind(double block, const UnitCalls& calls, double overlap) {
  return calls.count * calls.seconds - calls.hidden * std::min(overlap * calls.seconds, block);
}

inline ActionSeconds durations_of(const StageTimes& stage, pipeline_parallel::Kind kind,
                                  double overlap) {
  using pipeline_parallel::Kind;
  const auto exposed = [&](double computing, const UnitCalls& calls) {
    return exposed_behind(computing / stage.blocks, calls, overlap);
  };
  switch (kind) {
    case Kind::forward:
      return {stage.forward, stage.tensor_forward + exposed(stage.forward, stage.gather_forward)};
    case Kind::backward_input:
      return {stage.input, stage.tensor_backward + exposed(stage.input, stage.gather_backward)};
    case Kind::backward_weight:
      return {stage.weight, exposed(stage.weight, stage.scatter)};
    default:
      break;
  }
  // Gathers and scatters share the time of a whole backward.
  const double computing = stage.input + stage.weight;
  return {computing, stage.tensor_backward + exposed(computing / 2, stage.gather_backward) +
                         exposed(computing / 2, stage.scatter)};
}

// The factor of the slowest rank of a unit, for its `computation`-th action.
inline double slowest_of(const Stragglers& stragglers, const RankGroup& unit,
                         std::uint64_t computation) {
  if (!stragglers.any()) return 1;
  double most = 0;
  for (std::int64_t i = 0; i < unit.count; ++i)
    most = std::max(most, stragglers.factor(unit.first + i * unit.stride, computation));
  return most;
}

}  // namespace ringside::planning
