// Bytes that a rank sends for each parallel axis, and how long they take.
//
// Symbols: n ranks of the axis, D bytes of a buffer, T tokens of a micro-batch, d width, e bytes of
// a number, W bytes per second of the link, eta the share of W that is reached.
#pragma once

#include "planning/machine.hpp"
#include "planning/plan.hpp"
#include "planning/quantity.hpp"

namespace ringside::planning {

// What one rank sends in a ring all-reduce, and in a ring all-gather or reduce-scatter, of a buffer
// that is D bytes long when whole.
Term ring_all_reduce_bytes(const Quantity& n, const Quantity& buffer);
Term ring_all_gather_bytes(const Quantity& n, const Quantity& buffer);

// Tensor parallel: calls of one block for one micro-batch, and what a rank sends in them. Without
// sequence parallel a call is an all-reduce; with it, an all-gather or a reduce-scatter.
Term tensor_calls_of_block(const Model& model, const Plan& plan);
Term tensor_bytes_of_block(const Model& model, const Plan& plan);
// Rows of a token in such a call, the mean: 1, and with experts K in the feed-forward half.
Quantity tensor_rows(const Model& model);

// The same for embedding (its output), head (the gradient of its input) and cross-entropy (three
// fp32 numbers a token).
Term tensor_bytes_of_edge(const Model& model, const Plan& plan);
Term tensor_bytes_of_cross_entropy(const Plan& plan);

// Once a step: gradients that several ranks have parts of, or copies. Along tp those of the norms,
// of which each rank sees its own tokens under sequence parallel, and those of key and value heads
// that ranks share; along pp those of a tied matrix that the first and the last stage both have.
Term tensor_bytes_of_sums(const Model& model, const Plan& plan, const PipelinePart& part);
Term pipeline_bytes_of_sums(const Model& model, const Plan& plan, const PipelinePart& part);

// Sharded parameters: of `units` gathers or reductions of a micro-batch, those that run behind the
// computing of one of `blocks` blocks: the next unit is gathered, or the one before is reduced. The
// first gather and the last reduction run behind nothing, and those beside the embedding behind
// its few reads.
double calls_behind_blocks(double units, double blocks, bool has_head);

// Of a part of the pipeline: its units, and those that are gathered again for backward, in which
// they have `parameters_again`; and how many calls of each run behind a block.
struct ShardedUnits {
  double count = 0, again = 0;
  Quantity parameters_again = 0;
  double hidden = 0, hidden_again = 0;
};
ShardedUnits sharded_units(const Model& model, const Quantity& t, const PipelinePart& part);

// Context parallel: calls of a block's attention, and what a rank sends in them, one micro-batch.
Term context_calls_of_block(const Plan& plan);
Term context_bytes_of_block(const Model& model, const Plan& plan);

// Expert parallel: all-to-alls of a block, and what a rank sends in them, one micro-batch, with
// equal load of the experts or Plan::imbalance times as much. And what is averaged along ep: all
// but the experts.
Term expert_calls_of_block(const Plan& plan);
Term expert_bytes_of_block(const Model& model, const Plan& plan);
Quantity parameters_beside_experts(const Model& model, const Quantity& t, const PipelinePart& part);

// Pipeline parallel: one message to a neighbouring stage.
Term boundary_bytes(const Model& model, const Plan& plan);

// How long a rank's link carries them: latencies of `messages` one after the other, and bytes.
Term link_seconds(const Quantity& messages, const Quantity& bytes, const Level& level);

}  // namespace ringside::planning
