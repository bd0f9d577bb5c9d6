// What is whole for a short time although ZeRO divides it: units of parameters, and gradients on
// their way to the ranks that keep them.
//
// Symbols: e and e_g bytes of a parameter and of a gradient, P parameters of this rank's stage.
#pragma once

#include "planning/plan.hpp"
#include "planning/quantity.hpp"

namespace ringside::planning {

// The largest unit of a stage, and its largest matrix, in parameters on one of t tensor-parallel
// ranks. Units are blocks; the embedding; the last norm with the head.
Term largest_unit(const Model& model, const Quantity& t, const PipelinePart& part);
Term largest_parameter(const Model& model, const Quantity& t, const PipelinePart& part);

// Sharded parameters: two neighbouring units are whole while they run, the largest and a block.
Term gathered_units(const Quantity& block, const Quantity& largest, const Types& types);
// Their gradients: one unit, the copy that backward makes, and two blocks that are being reduced.
Term reduced_units(const Quantity& block, const Quantity& largest, const Types& types);

// ZeRO stage 2: buckets of gradients, two of which are being reduced and one is being filled, which
// is as large as the largest parameter if that is larger; and the gradient that backward is adding
// to it.
Term reduced_buckets(const Quantity& parameters, const Quantity& largest, double bucket_bytes,
                     const Types& types);

}  // namespace ringside::planning
