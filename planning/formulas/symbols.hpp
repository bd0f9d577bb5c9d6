// Symbols that many formulas share.
#pragma once

#include "planning/plan.hpp"
#include "planning/quantity.hpp"

namespace ringside::planning {

// The ranks of a tensor-parallel group.
inline Quantity tensor_ranks(const Plan& plan) {
  return {"t", plan.mesh.size(Axis::tp)};
}

// The tokens of a micro-batch on one rank, all its sequences together.
inline Quantity micro_batch_tokens(const Plan& plan) {
  return {"T", plan.rank_sequence() * plan.micro_batch};
}

}  // namespace ringside::planning
