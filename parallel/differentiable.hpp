// Collectives as differentiable functions: gradients flow back through them.
//
// The gradient of a collective is another collective, its conjugate. If a value of one rank is used
// on all ranks, its gradient is the sum of all ranks' gradients; and the reverse.
//
//                           forward             backward
//     copy_to_group         identity            all-reduce (sum)        f
//     reduce_from_group     all-reduce (sum)    identity                g
//     gather_sequence       all-gather          reduce-scatter (sum)    f with sequence parallel
//     scatter_sequence      reduce-scatter      all-gather              g with sequence parallel
//     all_to_all            all-to-all          all-to-all
//
// f and g: Shoeybi et al., "Megatron-LM" (2019), section 3. The sequence pair: Korthikanti et al.,
// "Reducing activation recomputation in large transformer models" (2022), section 4.2.2.
//
// The loss of every rank must be the same number: each rank calls backward on its own copy, and a
// replicated gradient is then the same on all ranks.
//
// All functions work out of place: the engine may hold the gradient that backward receives for
// another node too, and forward's input belongs to the caller. All ranks of the group must call the
// same functions in the same order. `group` must live until backward is done. `label` names the
// tensor in errors; the call in backward is "gradient of LABEL". In a group of one rank they are
// the identity.
#pragma once

#include <string_view>

#include "autograd/tensor/tensor.hpp"
#include "collectives/process_group.hpp"

namespace ringside::parallel {

// f. x is the same on all ranks, and each rank goes on with columns of its own:
//
//     forward           x ─┬─> rank 0's columns       backward    dx = dx_0 + dx_1 <─┬─ dx_0
//                          └─> rank 1's columns                                      └─ dx_1
//
// Any shape. The result is x itself in memory: nothing is copied in forward.
autograd::Tensor copy_to_group(const autograd::Tensor& x, collectives::ProcessGroup& group,
                               std::string_view label);

// g. Each rank holds a term of a sum, and all go on with the sum:
//
//     forward    y_0 ─┬─> y = y_0 + y_1 on both       backward    dy ─┬─> dy_0 = dy
//                y_1 ─┘                                               └─> dy_1 = dy
//
// Any shape, the same on all ranks.
autograd::Tensor reduce_from_group(const autograd::Tensor& partial,
                                   collectives::ProcessGroup& group, std::string_view label);

// f where each rank holds only its tokens: x [B, T/t, d] -> [B, T, d], the tokens of all t ranks in
// the order of ranks. Backward sums the ranks' gradients and returns those of this rank's tokens.
//
//     forward    rank 0  [a b] ─┬─> [a b c d]          backward    [da db dc dd]_0 ─┬─> [da db]
//                rank 1  [c d] ─┘   on both                        [da db dc dd]_1 ─┘   [dc dd]
//
autograd::Tensor gather_sequence(const autograd::Tensor& x, collectives::ProcessGroup& group,
                                 std::string_view label);

// g where each rank goes on with its tokens only: terms of a sum [B, T, d] -> this rank's tokens of
// the sum [B, T/t, d]. Throws Error if t does not divide T.
autograd::Tensor scatter_sequence(const autograd::Tensor& partial, collectives::ProcessGroup& group,
                                  std::string_view label);

// x [t n, ...], a block of n rows for each rank -> [t n, ...], the block that each rank sent to
// this one. Throws Error if t does not divide the rows.
//
//     rank 0   [a0 a1]  ──>  [a0 b0]
//     rank 1   [b0 b1]  ──>  [a1 b1]         the gradients travel the same way back
//
autograd::Tensor all_to_all(const autograd::Tensor& x, collectives::ProcessGroup& group,
                            std::string_view label);

}  // namespace ringside::parallel
