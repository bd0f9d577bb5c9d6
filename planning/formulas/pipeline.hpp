// The bubble of a pipeline: the time that a stage waits, in closed form. All stages take the same
// time, and messages between them none.
//
// Symbols: p stages, m micro-batches, v chunks of a stage; F, I, W the times of forward, of the
// gradient of the input, and of the gradient of the weights, for one micro-batch on one stage.
#pragma once

#include "planning/plan.hpp"
#include "planning/quantity.hpp"

namespace ringside::planning {

// The share of the step that is bubble.
Term bubble_share(const Plan& plan);

// The bubble of a step as time: `stage` seconds is forward and backward of one micro-batch on one
// stage, with F = I = W for the zero-bubble schedules.
Term bubble_seconds(const Plan& plan, const Quantity& stage);

}  // namespace ringside::planning
