// What the formulas of planning/ say of a training step, beside which a bench shows what it has
// measured.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "planning/memory.hpp"
#include "planning/model.hpp"
#include "planning/plan.hpp"

namespace ringside::planning {

struct StepFormula {
  // Bytes that a rank sends in a step along an axis, the mean of all; 0 for an axis of one rank.
  std::map<Axis, double> sent;
  std::vector<RankMemory> memory;  // [pp coordinate]

  // Of the ranks with this pp coordinate: parameters, gradients and the state of AdamW, without the
  // padding of shards and without what is held for a moment only.
  double held(std::size_t coordinate = 0) const;
};

// The padding of shards and the few numbers of
// the norm and the loss are left out.
StepFormula step_formula(const Model& model, const Plan& plan);

}  // namespace ringside::planning
