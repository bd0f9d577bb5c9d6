// Between the blocks of tokens that ranks hold and whole sequences.
#pragma once

#include "autograd/tensor/tensor.hpp"
#include "collectives/process_group.hpp"
#include "parallel/context/order.hpp"

namespace ringside::context_parallel {

// A block for each rank [c, B, H, T/c, D] -> all tokens in ascending order [B, H, T, D], a copy;
// and the reverse. No history.
autograd::Tensor in_token_order(const autograd::Tensor& blocks, TokenOrder order);
autograd::Tensor in_blocks(const autograd::Tensor& tokens, TokenOrder order, int ranks);

// x [B, H, T/c, D], this rank's tokens -> all tokens [B, H, T, D]. Backward sums the ranks'
// gradients: a reduce-scatter.
autograd::Tensor gather_tokens(const autograd::Tensor& x, TokenOrder order,
                               collectives::ProcessGroup& group, const char* label);

// x [B, H, T/c, D], all heads of this rank's tokens -> [B, H/c, T, D], some heads of all tokens;
// and the reverse. Each is the other's backward.
autograd::Tensor tokens_to_heads(const autograd::Tensor& x, TokenOrder order,
                                 collectives::ProcessGroup& group, const char* label);
autograd::Tensor heads_to_tokens(const autograd::Tensor& x, TokenOrder order,
                                 collectives::ProcessGroup& group, const char* label);

}  // namespace ringside::context_parallel
