#include "parallel/context/token_blocks.hpp"

#include "autograd/engine/node.hpp"
#include "autograd/tensor/layout.hpp"
#include "ddp/tensor_collectives.hpp"

namespace ringside::context_parallel {

using autograd::Gradients;
using autograd::Node;
using autograd::Tensor;
using collectives::ProcessGroup;

namespace {

// Calls copy(piece of a rank's block, the same tokens in the sequence) for every piece. `blocks` is
// [c, B, H, T/c, D] and `tokens` [B, H, T, D].
template <class Copy>
void for_each_piece(const Tensor& blocks, const Tensor& tokens, TokenOrder order, Copy copy) {
  const int ranks = static_cast<int>(blocks.size(0));
  const std::int64_t length = tokens.size(2) / piece_count(order, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const Tensor block = blocks.narrow(0, rank, 1);
    const Tensor of_rank =
        block.reshape({block.size(1), block.size(2), block.size(3), block.size(4)});
    std::int64_t begin = 0;
    for (const int piece : pieces_of(order, ranks, rank)) {
      copy(of_rank.narrow(2, begin, length), tokens.narrow(2, piece * length, length));
      begin += length;
    }
  }
}

// x [B, H, T/c, D] -> [c, B, H/c, T/c, D], the heads for each rank.
Tensor heads_in_blocks(const Tensor& x, std::int64_t ranks) {
  return x.reshape({x.size(0), ranks, x.size(1) / ranks, x.size(2), x.size(3)})
      .transpose(0, 1)
      .contiguous();
}

Tensor exchange(const Tensor& blocks, ProcessGroup& group, const std::string& label) {
  const Tensor received = autograd::empty_like(blocks);
  ddp::all_to_all(blocks, received, group, label);
  return received;
}

Tensor to_heads(const Tensor& x, TokenOrder order, ProcessGroup& group, const std::string& label) {
  return in_token_order(exchange(heads_in_blocks(x, group.size()), group, label), order);
}

Tensor to_tokens(const Tensor& x, TokenOrder order, ProcessGroup& group, const std::string& label) {
  const Tensor blocks = exchange(in_blocks(x, order, group.size()), group, label);
  return blocks.transpose(0, 1).contiguous().reshape(
      {x.size(0), x.size(1) * group.size(), x.size(2) / group.size(), x.size(3)});
}

std::string gradient_of(const char* label) {
  return fmt::format("gradient of {}", label);
}

}  // namespace

Tensor in_token_order(const Tensor& blocks, TokenOrder order) {
  const Tensor tokens = Tensor::empty(
      {blocks.size(1), blocks.size(2), blocks.size(0) * blocks.size(3), blocks.size(4)},
      blocks.dtype(), blocks.device());
  for_each_piece(blocks, tokens, order,
                 [](const Tensor& of_rank, const Tensor& whole) { whole.copy_(of_rank); });
  return tokens;
}

Tensor in_blocks(const Tensor& tokens, TokenOrder order, int ranks) {
  const Tensor blocks =
      Tensor::empty({ranks, tokens.size(0), tokens.size(1), tokens.size(2) / ranks, tokens.size(3)},
                    tokens.dtype(), tokens.device());
  for_each_piece(blocks, tokens, order,
                 [](const Tensor& of_rank, const Tensor& whole) { of_rank.copy_(whole); });
  return blocks;
}

Tensor gather_tokens(const Tensor& x, TokenOrder order, ProcessGroup& group, const char* label) {
  const Tensor own = x.detach().contiguous();
  const Tensor blocks =
      Tensor::empty({group.size(), own.size(0), own.size(1), own.size(2), own.size(3)}, own.dtype(),
                    own.device());
  ddp::all_gather(own, blocks, group, label);
  return record("gather_tokens", in_token_order(blocks, order), {x},
                [order, &group, label](const Node&, const Tensor& dy) -> Gradients {
                  const Tensor terms = in_blocks(dy, order, group.size());
                  const Tensor sum =
                      Tensor::empty({terms.size(1), terms.size(2), terms.size(3), terms.size(4)},
                                    dy.dtype(), dy.device());
                  ddp::reduce_scatter_sum(terms, sum, group, gradient_of(label));
                  return {sum};
                });
}

Tensor tokens_to_heads(const Tensor& x, TokenOrder order, ProcessGroup& group, const char* label) {
  return record("tokens_to_heads", to_heads(x.detach(), order, group, label), {x},
                [order, &group, label](const Node&, const Tensor& dy) -> Gradients {
                  return {to_tokens(dy, order, group, gradient_of(label))};
                });
}

Tensor heads_to_tokens(const Tensor& x, TokenOrder order, ProcessGroup& group, const char* label) {
  return record("heads_to_tokens", to_tokens(x.detach(), order, group, label), {x},
                [order, &group, label](const Node&, const Tensor& dy) -> Gradients {
                  return {to_heads(dy, order, group, gradient_of(label))};
                });
}

}  // namespace ringside::context_parallel
