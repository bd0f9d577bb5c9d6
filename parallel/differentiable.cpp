#include "parallel/differentiable.hpp"

#include <string>

#include "autograd/engine/node.hpp"
#include "autograd/tensor/layout.hpp"
#include "base/error.hpp"
#include "ddp/tensor_collectives.hpp"

namespace ringside::parallel {

using autograd::Gradients;
using autograd::Node;
using autograd::Tensor;
using collectives::ProcessGroup;

namespace {

std::string gradient_of(std::string_view label) {
  return fmt::format("gradient of {}", label);
}

// The sum of all ranks' x, in new memory.
Tensor sum_of_ranks(const Tensor& x, ProcessGroup& group, std::string_view label) {
  const Tensor terms = x.contiguous(), sum = autograd::empty_like(terms);
  ddp::all_reduce_sum(terms, sum, group, label);
  return sum;
}

void require_sequence(const char* function, const Tensor& x, std::string_view label) {
  require(x.dim() == 3, "{}: expected {} of shape [B, T, d], got {}", function, label, x.shape());
}

// A collective moves blocks that follow each other: one block for each rank. In [B, T, d] a rank's
// tokens are one block only if B is 1, and nothing is copied. Otherwise the ranks' dimension moves:
//
//     whole    [B, T, d] = [B, t, T/t, d]     sequence 0: a b | c d     sequence 1: e f | g h
//     blocks   [t, B, T/t, d]                 rank 0: a b e f           rank 1: c d g h
//
// x [B, T/t, d] -> [B, T, d]
Tensor all_gather_tokens(const Tensor& x_any_strides, ProcessGroup& group, std::string_view label) {
  const Tensor x = x_any_strides.contiguous();
  const std::int64_t batch = x.size(0), tokens = x.size(1), d = x.size(2), ranks = group.size();
  const Tensor blocks = Tensor::empty({ranks, batch, tokens, d}, x.dtype(), x.device());
  ddp::all_gather(x, blocks, group, label);
  return blocks.transpose(0, 1).contiguous().reshape({batch, ranks * tokens, d});
}

// Terms of a sum [B, T, d] -> this rank's tokens of the sum [B, T/t, d]
Tensor reduce_scatter_tokens(const Tensor& partial, ProcessGroup& group, std::string_view label) {
  const std::int64_t batch = partial.size(0), tokens = partial.size(1), d = partial.size(2),
                     ranks = group.size();
  require(tokens % ranks == 0,
          "scatter_sequence: {} tokens of {} cannot be divided among {} ranks: take a sequence "
          "length that is a multiple of {}",
          tokens, label, ranks, ranks);
  const Tensor blocks =
      partial.reshape({batch, ranks, tokens / ranks, d}).transpose(0, 1).contiguous();
  const Tensor own = Tensor::empty({batch, tokens / ranks, d}, partial.dtype(), partial.device());
  ddp::reduce_scatter_sum(blocks, own, group, label);
  return own;
}

// Block i of x -> rank i, in new memory.
Tensor exchange(const Tensor& x_any_strides, ProcessGroup& group, std::string_view label) {
  const Tensor x = x_any_strides.contiguous(), received = autograd::empty_like(x);
  ddp::all_to_all(x, received, group, label);
  return received;
}

}  // namespace

Tensor copy_to_group(const Tensor& x, ProcessGroup& group, std::string_view label) {
  if (group.size() == 1) return x;
  const Tensor same = autograd::make_view(x, x.offset(), x.shape(), x.strides());
  return record("copy_to_group", same, {x},
                [&group, label = gradient_of(label)](const Node&, const Tensor& dy) -> Gradients {
                  return {sum_of_ranks(dy, group, label)};
                });
}

Tensor reduce_from_group(const Tensor& partial, ProcessGroup& group, std::string_view label) {
  if (group.size() == 1) return partial;
  return record("reduce_from_group", sum_of_ranks(partial.detach(), group, label), {partial},
                [](const Node&, const Tensor& dy) -> Gradients { return {dy}; });
}

Tensor gather_sequence(const Tensor& x, ProcessGroup& group, std::string_view label) {
  require_sequence("gather_sequence", x, label);
  if (group.size() == 1) return x;
  return record("gather_sequence", all_gather_tokens(x.detach(), group, label), {x},
                [&group, label = gradient_of(label)](const Node&, const Tensor& dy) -> Gradients {
                  return {reduce_scatter_tokens(dy, group, label)};
                });
}

Tensor scatter_sequence(const Tensor& partial, ProcessGroup& group, std::string_view label) {
  require_sequence("scatter_sequence", partial, label);
  if (group.size() == 1) return partial;
  return record("scatter_sequence", reduce_scatter_tokens(partial.detach(), group, label),
                {partial},
                [&group, label = gradient_of(label)](const Node&, const Tensor& dy) -> Gradients {
                  return {all_gather_tokens(dy, group, label)};
                });
}

Tensor all_to_all(const Tensor& x, ProcessGroup& group, std::string_view label) {
  require(x.dim() >= 1 && x.size(0) % group.size() == 0,
          "all_to_all: {} of shape {} cannot be divided into {} blocks of rows, one for each rank",
          label, x.shape(), group.size());
  if (group.size() == 1) return x;
  return record("all_to_all", exchange(x.detach(), group, label), {x},
                [&group, label = gradient_of(label)](const Node&, const Tensor& dy) -> Gradients {
                  return {exchange(dy, group, label)};
                });
}

}  // namespace ringside::parallel
