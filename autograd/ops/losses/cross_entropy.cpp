// cross_entropy: softmax, logarithm, selection of the target and mean in one op. The formulas of
// one row stand in kernels/cpu/cross_entropy.cpp.
#include "autograd/engine/node.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/losses/loss.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

// z [tokens, V], targets [tokens] -> loss, a scalar
//
//     loss     = mean over tokens t of (log sum_v exp(z[t, v]) - z[t, target])
//     dz[t, v] = (softmax(z[t])[v] - [v == target]) / count
//
// Backward computes the softmax from z and the saved logarithms; the softmax itself is not saved.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets_input, std::int32_t ignore_index) {
  require_ids("cross_entropy", "targets", targets_input);
  require(
      logits.dim() >= 1 && logits.size(-1) > 0 && leading(logits.shape()) == targets_input.shape(),
      "cross_entropy: expected logits [..., V] and targets [...], got {} and {}", logits.shape(),
      targets_input.shape());
  const Tensor z = logits.contiguous();
  // The host checks the targets, whatever device the logits are on.
  const Tensor on_host = targets_input.to(Device::cpu).contiguous(),
               targets = on_host.to(z.device());
  const std::int64_t tokens = targets.elements(),
                     count = count_targets("cross_entropy", on_host, z.size(-1), ignore_index);
  const DType computed = compute_dtype(z.dtype());
  const Tensor losses = empty_losses(tokens, z.device()),
               log_sums = Tensor::empty({tokens}, computed, z.device());
  kernels_of(z).cross_entropy(z, targets, ignore_index, losses, log_sums);

  return record(
      "cross_entropy", mean_loss(losses, count, computed), {z},
      [z, targets, log_sums, count, ignore_index](const Node&, const Tensor& dloss) -> Gradients {
        const Tensor dz = empty_like(z);
        kernels_of(z).cross_entropy_backward(z, targets, ignore_index, log_sums, count, dloss, dz);
        return {dz};
      });
}

}  // namespace ringside::autograd
