#include "parallel/context/attention.hpp"

#include "autograd/engine/node.hpp"
#include "autograd/ops/ops.hpp"
#include "base/error.hpp"
#include "parallel/context/token_blocks.hpp"

namespace ringside::context_parallel {

using autograd::Gradients;
using autograd::Node;
using collectives::ProcessGroup;

namespace {

// k and v [B, H_kv, n, D] -> [B, 2 H_kv, n, D], so that one call carries both.
Tensor side_by_side(const Tensor& k, const Tensor& v) {
  const std::int64_t heads = k.size(1);
  const Tensor both =
      Tensor::empty({k.size(0), 2 * heads, k.size(2), k.size(3)}, k.dtype(), k.device());
  both.narrow(1, 0, heads).copy_(k);
  both.narrow(1, heads, heads).copy_(v);
  return record("side_by_side", both, {k, v}, [heads](const Node&, const Tensor& dy) -> Gradients {
    return {dy.narrow(1, 0, heads), dy.narrow(1, heads, heads)};
  });
}

// Outputs of one or two pieces of a rank's queries, [B, H, n, D] each -> [B, H, 2 n, D], in memory
// [B, 2 n, H, D] as causal_attention leaves it.
Tensor one_after_the_other(const Tensor& first, const Tensor& second) {
  const std::int64_t n = first.size(2);
  const Tensor all = Tensor::empty({first.size(0), 2 * n, first.size(1), first.size(3)},
                                   first.dtype(), first.device())
                         .transpose(1, 2);
  all.narrow(2, 0, n).copy_(first);
  all.narrow(2, n, n).copy_(second);
  return record("one_after_the_other", all, {first, second},
                [n](const Node&, const Tensor& dy) -> Gradients {
                  return {dy.narrow(2, 0, n), dy.narrow(2, n, n)};
                });
}

}  // namespace

// A piece of queries sees the keys of all pieces up to its own: causal_attention takes the queries
// as the last ones of so many keys.
Tensor all_gather_attention(const Tensor& q, const Tensor& k, const Tensor& v, TokenOrder order,
                            ProcessGroup& group) {
  const std::int64_t heads = k.size(1);
  const Tensor all = gather_tokens(side_by_side(k, v), order, group, "keys and values");
  const Tensor keys = all.narrow(1, 0, heads), values = all.narrow(1, heads, heads);
  const std::vector<int> pieces = pieces_of(order, group.size(), group.rank());
  const auto count = static_cast<std::int64_t>(pieces.size()), length = q.size(2) / count;
  std::vector<Tensor> outputs;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t seen = (pieces[static_cast<std::size_t>(i)] + 1) * length;
    outputs.push_back(autograd::causal_attention(
        q.narrow(2, i * length, length), keys.narrow(2, 0, seen), values.narrow(2, 0, seen)));
  }
  return count == 1 ? outputs[0] : one_after_the_other(outputs[0], outputs[1]);
}

Tensor ulysses_attention(const Tensor& q, const Tensor& k, const Tensor& v, TokenOrder order,
                         ProcessGroup& group) {
  const Tensor y = autograd::causal_attention(tokens_to_heads(q, order, group, "queries"),
                                              tokens_to_heads(k, order, group, "keys"),
                                              tokens_to_heads(v, order, group, "values"));
  return heads_to_tokens(y, order, group, "outputs of heads");
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const ContextOptions& options,
                 ProcessGroup& group) {
  const int pieces = piece_count(options.order, group.size()) / group.size();
  require(q.size(2) % pieces == 0 && q.size(2) == k.size(2),
          "context parallel: expected queries and keys of {} equal pieces on each rank, got {} and "
          "{} tokens",
          pieces, q.size(2), k.size(2));
  switch (options.exchange) {
    case Exchange::all_gather:
      return all_gather_attention(q, k, v, options.order, group);
    case Exchange::ulysses:
      return ulysses_attention(q, k, v, options.order, group);
    case Exchange::ring:
      break;
  }
  return ring_attention(q, k, v, options.order, group);
}

}  // namespace ringside::context_parallel
