// Compiled with the student's file each time that it changes. Makes an op of the student's kernels,
// as autograd/ops/attention.cpp does with those of the reference.
#include "attention.cpp"
#include "autograd/engine/node.hpp"
#include "autograd/tensor/layout.hpp"
#include "exercises/11-attention-backward/interface.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

using Kernels = student::autograd::CpuKernels;

Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor y = empty_like(q),
               log_sums = Tensor::empty({q.size(0), q.size(1), q.size(2)}, q.dtype());
  Kernels::attention_to_block(q, k, v, true, y, log_sums);
  return record("causal_attention", y, {q, k, v},
                [q, k, v, log_sums](const Node&, const Tensor& dy) -> Gradients {
                  const Tensor dq = empty_like(q), dk = empty_like(k), dv = empty_like(v);
                  Kernels::attention_to_block_backward(q, k, v, true, log_sums, {}, dy.contiguous(),
                                                       dq, dk, dv);
                  return {dq, dk, dv};
                });
}

[[maybe_unused]] const bool bound = student_attention.bind(causal_attention);

}  // namespace
}  // namespace ringside::exercises
