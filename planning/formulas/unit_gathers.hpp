// Which parameters ZeRO stage 3 gathers in a step of a pipeline: a unit that is still whole from
// the action before is not gathered again, and the next unit may belong to another stage.
//
// Follows zero/zero3.cpp use by use, without communication.
#pragma once

#include "planning/plan.hpp"

namespace ringside::planning {

// Numbers of one tensor rank in a step, whole.
struct UnitGathers {
  double forward = 0, backward = 0;
};

// Of the rank with this coordinate along pp.
UnitGathers unit_gathers(const Model& model, const Plan& plan, std::int64_t rank);

}  // namespace ringside::planning
