// One step of a pipeline whose stages are a layer each, and the same step on a single process.
#pragma once

#include <cstdint>
#include <string>

#include "exercises/judge/judge.hpp"
#include "parallel/pipeline/schedule.hpp"

// ["forward", stage, micro-batch], or "backward".
template <>
struct ringside::JsonForm<ringside::pipeline_parallel::Action> {
  static Json to_json(const pipeline_parallel::Action& action);
  static pipeline_parallel::Action from_json(const Json& json);
};

namespace ringside::exercises {

// Carries out a schedule that lower() has completed, over the group of the world. Returns the
// gradients of this rank's stages: {"stage 0, weight": [...]}.
Json gradients_of_step(const pipeline_parallel::Schedule& lowered, World& world);

// The gradients of all stages, computed by one process, micro-batch after micro-batch.
Json gradients_of_single(int stages, int micro_batches, std::uint64_t seed);

// The first number in which the gradients of a rank differ from those of a single process, as a
// sentence; "" if there is none.
std::string difference(const Json& seen, const Json& expected);

}  // namespace ringside::exercises
