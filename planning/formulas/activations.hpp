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

// What W needs of a block, between I and W: the inputs of its products and the gradients of their
// outputs.
Term deferred_activations(const Model& model, const Plan& plan);

// What exists only while forward runs through a block of a llama.
Quantity forward_memory(const Model& model, const Plan& plan);

// What exists only while backward runs through a block: its gradients, and under full recomputation
// its activations again. In a B that is the first of its stage the gradients of the matrices
// remain, and are not counted here.
enum class Backward { first, later, input };  // B, B, I
Term working_memory(const Model& model, const Plan& plan, bool is_at_head, Backward backward);

// Where the last stage is, at its head: the last norm's tensors and logits; what is kept of them
// until backward; and copies in fp32 where Ringside trains in bf16.
Term head_activations(const Model& model, const Plan& plan);
Term kept_head(const Model& model, const Plan& plan);
Term converted_head(const Model& model, const Plan& plan);

// Where the first stage is, when backward has come to the embedding.
Term embedding_activations(const Model& model, const Plan& plan);

// How many blocks' activations a part of the pipeline holds at its peak: the blocks of its stages
// times the passes in flight.
Term blocks_in_flight(const Plan& plan, const PipelinePart& part);

}  // namespace ringside::planning
