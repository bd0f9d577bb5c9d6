// Floating-point operations, and how long a device takes for them.
//
// Symbols: T tokens of a micro-batch, s tokens of a sequence, P_matrices of a block, q width of all
// heads, V vocabulary, d width, t ranks of a tensor-parallel group. A product of [m, k] and [k, n]
// is 2 m k n FLOPs.
#pragma once

#include "planning/machine.hpp"
#include "planning/plan.hpp"
#include "planning/quantity.hpp"

namespace ringside::planning {

// The two products of attention, forward of a block, one micro-batch: queries with keys, scores
// with values.
Quantity attention_flops(const Model& model, const Plan& plan);
// Forward of one micro-batch through one block: its matrices, and both products of attention. The
// half of the scores that a causal mask discards is counted, as in the papers.
Term block_forward_flops(const Model& model, const Plan& plan);

// The same on the rank whose experts have the most rows (Plan::imbalance). The others wait for it.
Quantity busiest_forward_flops(const Model& model, const Plan& plan);

// Forward of one micro-batch through the head.
Term head_forward_flops(const Model& model, const Plan& plan);

// What recomputation adds for one block and micro-batch.
Term block_recomputed_flops(const Model& model, const Plan& plan);

// Forward and backward of the whole model and batch: 3 times forward, without recomputation.
Term model_flops(const Model& model, const Plan& plan);
// The same with what is computed twice.
Term hardware_flops(const Model& model, const Plan& plan);

// Bytes that one rank moves to and from its memory in ops that are no matrix product: those on the
// scores of attention, and all of a block's, for one token forward; then for one micro-batch,
// forward, backward (twice forward) and what recomputation adds.
Term scores_traffic(const Model& model, const Plan& plan);
Term block_forward_traffic(const Model& model, const Plan& plan);
Term block_traffic(const Model& model, const Plan& plan);

// Kernels that one rank launches for a block and micro-batch: forward; then with backward and what
// recomputation adds.
Term block_forward_kernels(const Model& model);
Term block_kernels(const Model& model, const Plan& plan);

// Bytes that a rank moves in one micro-batch to add the gradients of `parameters` to those of the
// micro-batches before: the sums of ZeRO's stages 2 and 3 are shards.
Term accumulation_traffic(const Quantity& parameters, const Plan& plan);

// Bytes that the optimizer's step moves: gradients read; masters, moments and parameters updated.
Term optimizer_traffic(const Quantity& parameters, const Types& types, double shards);

// The shortest side of a block's matrices on one rank: tokens, width, or what a tensor rank has of
// d_ff and of the queries. Narrow products reach a smaller share of the peak.
double block_width(const Model& model, const Plan& plan);

// Seconds of matrix products of `flops`, divided among the tensor-parallel ranks, whose shortest
// side is `width`; of ops that move `bytes` to and from memory; and of the fixed cost of `kernels`.
Quantity product_seconds(const Quantity& flops, double width, const Plan& plan,
                         const Machine& machine);
Quantity memory_seconds(const Quantity& bytes, const Machine& machine);
Quantity kernel_seconds(const Quantity& kernels, const Machine& machine);

// Forward and backward of one block, or of the head, for one micro-batch on one rank.
Term block_seconds(const Model& model, const Plan& plan, const Machine& machine);
Term head_seconds(const Model& model, const Plan& plan, const Machine& machine);
Term optimizer_seconds(const Quantity& bytes, const Machine& machine);

// The share of the devices' peak that the model's FLOPs use.
Term model_flops_utilization(const Quantity& flops, const Quantity& seconds, double devices,
                             const Machine& machine);

}  // namespace ringside::planning
