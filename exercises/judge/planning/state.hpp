// What a rank keeps between steps: parameters, gradients, masters and moments.
//
// Symbols: P parameters of this rank's stage, e bytes of a number, N ranks that divide it.
#pragma once

#include "exercises/judge/planning/plan.hpp"
#include "exercises/judge/planning/quantity.hpp"

namespace ringside::planning {

// Over how many ranks ZeRO divides each kind of state.
struct Shards {
  double parameters = 1, gradients = 1, optimizer = 1;
};
Shards shards_of(const Plan& plan);

Term parameter_bytes(const Quantity& parameters, const Types& types, double shards);
Term gradient_bytes(const Quantity& parameters, const Types& types, double shards);
// fp32 copies of 16-bit parameters; 0 for fp32 parameters.
Term master_bytes(const Quantity& parameters, const Types& types, double shards);
// The two moments of AdamW.
Term moment_bytes(const Quantity& parameters, const Types& types, double shards);

// All four of the whole model, on however many devices.
Term state_of_model(const Quantity& parameters, const Types& types);

}  // namespace ringside::planning
