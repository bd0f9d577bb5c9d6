// causal_attention: softmax(q k^T / sqrt(D)) v, where each query sees only the keys up to its own
// position. kernels/cpu/attention.cpp explains how it is computed without the T x T matrix of the
// probabilities, and kernels/shared/attention.hpp how a GPU does it.
#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

void check(const Tensor& q, const Tensor& k, const Tensor& v) {
  require_alike("causal_attention", q, k);
  require_alike("causal_attention", q, v);
  require(q.dim() == 4 && k.dim() == 4 && k.shape() == v.shape() && q.size(0) == k.size(0) &&
              q.size(3) == k.size(3) && q.size(3) > 0,
          "causal_attention: expected q [B, H, T, D], k and v [B, H_kv, T, D], got {}, {} and {}",
          q.shape(), k.shape(), v.shape());
  require(k.size(1) > 0 && q.size(1) % k.size(1) == 0,
          "causal_attention: {} query heads cannot share {} key heads evenly", q.size(1),
          k.size(1));
  require(
      q.size(2) > 0 && k.size(2) >= q.size(2),
      "causal_attention: expected at least one query and no more queries than keys, got {} and {}",
      q.size(2), k.size(2));
}

}  // namespace

// q [B, H, Tq, D], k, v [B, H_kv, Tk, D] -> y [B, H, Tq, D], in memory [B, Tq, H, D]
//
// dq, dk, dv have the memory order of q, k, v.
Tensor causal_attention(const Tensor& q_input, const Tensor& k_input, const Tensor& v_input) {
  check(q_input, k_input, v_input);
  const Tensor q = with_dense_rows(q_input), k = with_dense_rows(k_input),
               v = with_dense_rows(v_input);
  const std::int64_t batch = q.size(0), heads = q.size(1), queries = q.size(2);
  const Tensor log_sums =
      Tensor::empty({batch, heads, queries}, compute_dtype(q.dtype()), q.device());
  const Tensor y =
      Tensor::empty({batch, queries, heads, q.size(3)}, q.dtype(), q.device()).transpose(1, 2);
  const DeviceKernels& kernels = kernels_of(q);
  kernels.attention(q, k, v, y, log_sums);

  // Where backward reads y, the next op saves y as well, so it takes no memory of its own. It is
  // detached: a node that holds its own output would be a cycle.
  const Tensor saved_y = kernels.attention_backward_reads_y() ? y.detach() : Tensor();
  return record("causal_attention", y, {q, k, v},
                [q, k, v, saved_y, log_sums](const Node&, const Tensor& dy) -> Gradients {
                  const Tensor dq = empty_in_order_of(q), dk = empty_in_order_of(k),
                               dv = empty_in_order_of(v);
                  kernels_of(q).attention_backward(q, k, v, saved_y, log_sums, with_dense_rows(dy),
                                                   dq, dk, dv);
                  return {dq, dk, dv};
                });
}

}  // namespace ringside::autograd
