// linear_cross_entropy: cross_entropy(x W^T, targets), without all logits at once.
//
// Blocks of rows of x are computed one after the other:
//
//     z = x W^T                                             [block, V]    the only logits in memory
//     loss += log sum_v exp(z[t, v]) - z[t, target]
//     dz = (softmax(z[t])[v] - [v == target]) / count       [block, V]    overwrites z
//     dx = dz W                                             [block, n]
//     dW += dz^T x                                          [V, n]
//
// The gradients are computed during forward, while z is in memory; to compute z again in backward
// would cost a third more. Backward only multiplies them by the gradient of the loss. After Hsu et
// al., "Liger Kernel" (2024).
#include <algorithm>

#include "autograd/engine/node.hpp"
#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/losses/divided_losses.hpp"
#include "autograd/ops/losses/loss.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

std::int64_t cross_entropy_rows(std::int64_t tokens, std::int64_t vocabulary, Device device) {
  // A block has at most `logits` logits, but at least `fewest` rows: a product of fewer rows is
  // slow (docs/performance.md). A GPU needs larger products, and each block reads and writes dW.
  const std::int64_t logits = device == Device::cpu ? 1 << 23 : 1 << 27;
  constexpr std::int64_t fewest = 64;
  const std::int64_t most = std::max(fewest, logits / vocabulary);
  const std::int64_t blocks = std::max<std::int64_t>(1, (tokens + most - 1) / most);
  return std::max<std::int64_t>(1, (tokens + blocks - 1) / blocks);
}

namespace {

constexpr auto transposed = Transpose::yes;

// The tensors of one call, all on one device. bf16 x and w are multiplied as bf16; on a device that
// cannot do that they are converted to fp32 once.
struct LossProblem {
  Tensor x, w, targets;  // [tokens, n], [V, n], [tokens]
  std::int32_t ignore_index;
  double weight;  // of one token in the mean
  Tensor dx, dw;  // undefined if not needed; dw has the compute dtype
  Tensor losses;  // [tokens]; on the CPU if the vocabulary is divided
  // If w holds only some rows of the vocabulary; targets are then as divided_losses.hpp sees them.
  const RowStatistics* statistics = nullptr;

  bool wants_gradient() const { return dx.defined() || dw.defined(); }
};

// Rows first .. first + count - 1 of a contiguous tensor [rows, ...], as [count, size].
Tensor rows_of(const Tensor& all, std::int64_t first, std::int64_t count, std::int64_t size) {
  return make_view(all, all.offset() + first * size, {count, size}, {size, 1});
}

// The losses of the rows from `first` on, from their logits z [rows, V]. Returns dz: z itself, or
// for a product in bf16 a new tensor.
Tensor losses_of_block(const LossProblem& problem, std::int64_t first, const Tensor& z) {
  const std::int64_t rows = z.size(0);
  const Tensor targets = rows_of(problem.targets, first, rows, 1),
               losses = rows_of(problem.losses, first, rows, 1);
  const bool gradient = problem.wants_gradient();
  if (problem.statistics)
    return losses_of_divided_rows(z, targets, problem.weight, gradient, problem.x.dtype(),
                                  *problem.statistics, losses);
  const DeviceKernels& kernels = kernels_of(z);
  if (!gradient) {
    kernels.cross_entropy(z, targets, problem.ignore_index, losses, {});
    return z;
  }
  const DType stored = problem.x.dtype();
  const Tensor dz = stored == z.dtype() ? z : Tensor::empty(z.shape(), stored, z.device());
  kernels.cross_entropy_with_gradient(z, targets, problem.ignore_index, problem.weight, losses, dz);
  return dz;
}

// Computes all blocks of rows, as the head of this file describes.
void losses_and_gradients(const LossProblem& problem, std::int64_t rows_at_once) {
  const Tensor &x = problem.x, &w = problem.w;
  const std::int64_t tokens = problem.targets.elements(), vocabulary = w.size(0), n = w.size(1);
  const Tensor scratch = Tensor::empty({std::min(rows_at_once, tokens), vocabulary},
                                       compute_dtype(x.dtype()), x.device());
  for (std::int64_t first = 0; first < tokens; first += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, tokens - first);
    const Tensor z = rows_of(scratch, 0, rows, vocabulary), part = rows_of(x, first, rows, n);
    multiply({.b = transposed, .m = rows, .n = vocabulary, .k = n}, part, w, z);
    const Tensor dz = losses_of_block(problem, first, z);
    if (problem.dx.defined())
      multiply({.m = rows, .n = n, .k = vocabulary}, dz, w, rows_of(problem.dx, first, rows, n));
    if (problem.dw.defined())  // the first block writes, the others add
      multiply(
          {.a = transposed, .m = vocabulary, .n = n, .k = rows, .beta = first > 0 ? 1.0f : 0.0f},
          dz, part, problem.dw);
  }
}

// Both functions below: `statistics` is nullptr if the weight is whole.
Tensor loss_and_gradients(const Tensor& x_input, const Tensor& weight, const Tensor& targets_input,
                          VocabularyRange range, const RowStatistics* statistics,
                          std::int32_t ignore_index, std::int64_t rows_at_once) {
  require_ids("linear_cross_entropy", "targets", targets_input);
  require_alike("linear_cross_entropy", x_input, weight);
  require(x_input.dim() >= 1 && weight.dim() == 2 && weight.size(0) > 0 &&
              x_input.size(-1) == weight.size(1) &&
              leading(x_input.shape()) == targets_input.shape(),
          "linear_cross_entropy: expected x [..., n], weight [V, n] and targets [...], got {}, {} "
          "and {}",
          x_input.shape(), weight.shape(), targets_input.shape());
  require_range("linear_cross_entropy", weight, range);
  const Tensor x = x_input.contiguous(), w = weight.contiguous();
  const DType stored = x.dtype(), computed = compute_dtype(stored);
  const Device device = x.device();
  // The host checks the targets, whatever device x is on.
  const Tensor on_host = targets_input.to(Device::cpu).contiguous();
  const std::int64_t tokens = on_host.elements(),
                     count =
                         count_targets("linear_cross_entropy", on_host, range.whole, ignore_index);
  const Tensor targets =
      statistics ? targets_seen_here(on_host, range, w.size(0), ignore_index) : on_host;

  const bool converts = !kernels_of(x).multiplies_bf16();
  LossProblem problem{.x = converts ? to_compute_dtype(x) : x,
                      .w = converts ? to_compute_dtype(w) : w,
                      .targets = targets.to(device),
                      .ignore_index = ignore_index,
                      .weight = 1 / static_cast<double>(count),
                      .dx = {},
                      .dw = {},
                      .losses = empty_losses(tokens, statistics ? Device::cpu : device),
                      .statistics = statistics};
  if (is_recorded({x})) problem.dx = empty_like(problem.x);
  if (is_recorded({w}))  // without tokens there is no block that writes it
    problem.dw = tokens > 0 ? Tensor::empty(w.shape(), computed, device)
                            : Tensor::zeros(w.shape(), computed, device);
  losses_and_gradients(
      problem, rows_at_once > 0 ? rows_at_once : cross_entropy_rows(tokens, range.whole, device));
  const Tensor loss = mean_loss(problem.losses, count, computed).to(device);
  return record(
      "linear_cross_entropy", loss, {x, w},
      [dx = problem.dx, dw = problem.dw, stored](const Node&, const Tensor& dloss) -> Gradients {
        // The gradients are those of dloss = 1. No other tensor uses their memory.
        for (const Tensor& gradient : {dx, dw})
          if (gradient.defined()) kernels_of(gradient).scale_by(gradient, dloss);
        return {to_storage_dtype(dx, stored), to_storage_dtype(dw, stored)};
      });
}

}  // namespace

// x [tokens, n], W [V, n], targets [tokens] -> loss, a scalar
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            std::int32_t ignore_index, std::int64_t rows_at_once) {
  const std::int64_t vocabulary = weight.dim() == 2 ? weight.size(0) : 0;
  return loss_and_gradients(x, weight, targets, {0, vocabulary}, nullptr, ignore_index,
                            rows_at_once);
}

// x [tokens, n], W [V_r, n], targets [tokens] -> loss, a scalar; dx is this rank's part
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            VocabularyRange range, const RowStatistics& statistics,
                            std::int32_t ignore_index, std::int64_t rows_at_once) {
  return loss_and_gradients(x, weight, targets, range, &statistics, ignore_index, rows_at_once);
}

}  // namespace ringside::autograd
