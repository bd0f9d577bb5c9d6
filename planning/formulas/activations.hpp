// What forward keeps for backward.
//
// Symbols, as in Korthikanti et al. 2022: s tokens of a sequence, b sequences of a micro-batch, h
// width, a heads, t ranks of a tensor-parallel group, p stages, L blocks, v chunks of a stage,
// m micro-batches. For Ringside's own model also T = b s tokens, e bytes of a number, kv and f as
// in parameters.hpp.
#pragma once

#include "planning/plan.hpp"
#include "planning/quantity.hpp"

namespace ringside::planning {

// Activations of one block for one micro-batch, on one rank.
Term block_activations(const Model& model, const Plan& plan);

// What exists only while backward runs through a block: its gradients, and under full
// recomputation its activations again.
Term working_memory(const Model& model, const Plan& plan);

// At the head of the last stage: the last norm's tensors and logits.
Term head_activations(const Model& model, const Plan& plan);

// How many blocks' activations stage `index` holds at its peak: blocks of a chunk times chunks in
// flight.
Term blocks_in_flight(const Model& model, const Plan& plan, std::int64_t index);

}  // namespace ringside::planning
