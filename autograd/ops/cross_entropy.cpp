// cross_entropy: softmax, logarithm, choice of the target and mean in one op. linear_cross_entropy:
// with the product that makes the logits, which then are never there all at once.
#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/exp.hpp"
#include "autograd/kernels/gemm.hpp"
#include "autograd/kernels/rows.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/bf16.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

// log sum exp of a row, the largest taken out first so that nothing overflows.
template <class S, class T = Wide<S>>
T log_sum_exp(const S* row, std::int64_t n) {
  T largest = row[0];
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) largest = std::max<T>(largest, row[i]);
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < n; ++i) total += fast_exp(static_cast<T>(row[i]) - largest);
  return largest + std::log(total);
}

// How many targets count; checks them all.
std::int64_t count_targets(const char* op, const Tensor& targets, std::int64_t vocabulary,
                           std::int32_t ignore_index) {
  std::int64_t count = 0;
  for (const std::int32_t target : targets.values<std::int32_t>()) {
    if (target == ignore_index) continue;
    require(target >= 0 && target < vocabulary, "{}: target {} is not in 0..{}", op, target,
            vocabulary - 1);
    ++count;
  }
  return count;
}

// One by the number of targets that count; 1 where there is none, as then every loss is 0.
double weight_of(std::int64_t count) {
  return 1 / static_cast<double>(std::max<std::int64_t>(count, 1));
}

Tensor cross_entropy_on_device(const Tensor& z, const Tensor& targets, std::int64_t count,
                               std::int32_t ignore_index) {
  const DeviceKernels& kernels = device_kernels(z.device());
  const Tensor losses = Tensor::empty({targets.elements()}, DType::fp32, z.device()),
               log_sums = Tensor::empty(losses.shape(), DType::fp32, z.device());
  kernels.cross_entropy(z, targets, ignore_index, losses, log_sums);
  Tensor loss = Tensor::empty({}, DType::fp32, z.device());
  kernels.sum(losses, weight_of(count), loss);
  return record(
      "cross_entropy", loss, {z},
      [z, targets, log_sums, count, ignore_index](const Node&, const Tensor& dloss) -> Gradients {
        const Tensor dz = Tensor::empty(z.shape(), z.dtype(), z.device());
        device_kernels(z.device())
            .cross_entropy_backward(z, targets, ignore_index, log_sums, weight_of(count), dloss,
                                    dz);
        return {dz};
      });
}

}  // namespace

// z [tokens, V], targets [tokens] -> loss = mean over tokens t of (log sum_v exp(z[t, v]) - z[t,
// target])
//
//     dz[t, v] = (softmax(z[t])[v] - [v == target]) / count        from z and the saved logarithms: the softmax itself is never
//     stored
Tensor cross_entropy(const Tensor& logits, const Tensor& targets_input, std::int32_t ignore_index) {
  require_ids("cross_entropy", "targets", targets_input);
  require(logits.dim() >= 1 && logits.size(-1) > 0 &&
              Shape(logits.shape().begin(), logits.shape().end() - 1) == targets_input.shape(),
          "cross_entropy: expected logits [..., V] and targets [...], got {} and {}",
          logits.shape(), targets_input.shape());
  const Tensor z = logits.contiguous(),
               targets = targets_input.to(Device::cpu).contiguous();  // checked on the host
  const std::int64_t vocabulary = z.size(-1), tokens = targets.elements(),
                     count = count_targets("cross_entropy", targets, vocabulary, ignore_index);

  if (z.device() != Device::cpu)
    return cross_entropy_on_device(z, targets.to(z.device()), count, ignore_index);
  const DType computed = wide_type(z.dtype());
  Tensor loss = Tensor::empty({}, computed);
  const Tensor log_sums = Tensor::empty({tokens}, computed);
  dispatch_stored(z.dtype(), "cross_entropy", [&](auto zero) {
    using S = decltype(zero);  // logits are many: bf16 is widened one by one, on the way
    using T = Wide<S>;
    parallel_for(tokens, row_grain(vocabulary), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t)
        log_sums.data<T>()[t] = log_sum_exp(z.data<S>() + t * vocabulary, vocabulary);
    });
    double total = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int32_t target = targets.data<std::int32_t>()[t];
      if (target != ignore_index)
        total += static_cast<double>(log_sums.data<T>()[t]) -
                 static_cast<double>(static_cast<T>(z.data<S>()[t * vocabulary + target]));
    }
    *loss.data<T>() = static_cast<T>(count == 0 ? 0 : total / static_cast<double>(count));
  });

  return record(
      "cross_entropy", loss, {z},
      [z, targets, log_sums, vocabulary, tokens, count, ignore_index](
          const Node&, const Tensor& dloss) -> Gradients {
        const Tensor dz = Tensor::empty(z.shape(), z.dtype());
        dispatch_stored(z.dtype(), "cross_entropy", [&](auto zero) {
          using S = decltype(zero);
          using T = Wide<S>;
          const T weight =
              static_cast<T>(dloss.item() / static_cast<double>(std::max<std::int64_t>(count, 1)));
          parallel_for(tokens, row_grain(vocabulary), [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t t = begin; t < end; ++t) {
              const std::int32_t target = targets.data<std::int32_t>()[t];
              const S* const row = z.data<S>() + t * vocabulary;
              S* const drow = dz.data<S>() + t * vocabulary;
              if (target == ignore_index) {
                std::fill_n(drow, vocabulary, S(T(0)));
                continue;
              }
              const T log_sum = log_sums.data<T>()[t];
#pragma omp simd
              for (std::int64_t v = 0; v < vocabulary; ++v)
                drow[v] = fast_exp(static_cast<T>(row[v]) - log_sum) * weight;
              drow[target] = fast_exp(static_cast<T>(row[target]) - log_sum) * weight - weight;
            }
          });
        });
        return {dz};
      });
}

// --- linear_cross_entropy

std::int64_t cross_entropy_rows(std::int64_t tokens, std::int64_t vocabulary) {
  constexpr std::int64_t numbers = 1 << 23,
                         fewest = 64;  // of a block's logits; of rows, fewer of which make a
                                       // product slow (docs/performance.md)
  const std::int64_t most = std::max(fewest, numbers / vocabulary);
  const std::int64_t blocks = std::max<std::int64_t>(1, (tokens + most - 1) / most);
  return std::max<std::int64_t>(1, (tokens + blocks - 1) / blocks);
}

namespace {

constexpr auto plain = Transpose::no, transposed = Transpose::yes;

// x, W and targets as linear_cross_entropy computes with them (bf16 is widened), and where the
// gradients go: undefined if nobody asks.
struct LossProblem {
  Tensor x, w, targets;  // [tokens, n], [V, n], [tokens]
  std::int64_t tokens, n, vocabulary;
  std::int32_t ignore_index;
  Tensor dx, dw;

  bool wants_gradient() const { return dx.defined() || dw.defined(); }
};

// One row of logits z -> -log softmax(z)[target]. If `gradient`, z becomes (softmax(z) - [v ==
// target]) weight.
template <class T>
double loss_of_row(T* z, std::int64_t n, std::int32_t target, bool gradient, T weight) {
  T largest = z[0];
#pragma omp simd reduction(max : largest)
  for (std::int64_t v = 0; v < n; ++v) largest = std::max(largest, z[v]);
  const T chosen = z[target];
  T total = 0;
  if (!gradient) {
#pragma omp simd reduction(+ : total)
    for (std::int64_t v = 0; v < n; ++v) total += fast_exp(z[v] - largest);
  } else {
#pragma omp simd reduction(+ : total)
    for (std::int64_t v = 0; v < n; ++v) {
      z[v] = fast_exp(z[v] - largest);
      total += z[v];
    }
    const T factor = weight / total;
#pragma omp simd
    for (std::int64_t v = 0; v < n; ++v) z[v] *= factor;
    z[target] -= weight;
  }
  return static_cast<double>(largest + std::log(total)) - static_cast<double>(chosen);
}

// Rows first .. first + rows - 1: their losses, 0 for what is ignored, and what they add to the
// gradients. z [rows, V] is scratch.
template <class T>
void loss_of_block(const LossProblem& problem, std::int64_t first, std::int64_t rows, T weight,
                   T* z, double* losses) {
  const std::int64_t n = problem.n, vocabulary = problem.vocabulary;
  const T *const x = problem.x.data<T>() + first * n, *const w = problem.w.data<T>();
  const std::int32_t* const targets = problem.targets.data<std::int32_t>() + first;
  gemm(plain, transposed, rows, vocabulary, n, T(1), x, n, w, n, T(0), z,
       vocabulary);  // [rows, V] = [rows, n] [V, n]^T
  parallel_for(rows, row_grain(vocabulary), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const bool counts = targets[row] != problem.ignore_index;
      if (counts)
        losses[row] = loss_of_row(z + row * vocabulary, vocabulary, targets[row],
                                  problem.wants_gradient(), weight);
      else
        losses[row] = 0, std::fill_n(z + row * vocabulary, vocabulary, T(0));
    }
  });
  if (problem.dx.defined())  // [rows, n] = [rows, V] [V, n]
    gemm(plain, plain, rows, n, vocabulary, T(1), z, vocabulary, w, n, T(0),
         problem.dx.data<T>() + first * n, n);
  if (problem.dw.defined())  // [V, n] += [rows, V]^T [rows, n]
    gemm(transposed, plain, vocabulary, n, rows, T(1), z, vocabulary, x, n, T(first > 0),
         problem.dw.data<T>(), n);
}

// The mean of the losses; fills dx and dw.
double loss_and_gradients(const LossProblem& problem, std::int64_t count,
                          std::int64_t rows_at_once) {
  const Tensor scratch = Tensor::empty({std::min(rows_at_once, problem.tokens), problem.vocabulary},
                                       problem.x.dtype());
  std::vector<double> losses(static_cast<std::size_t>(problem.tokens));
  dispatch(problem.x.dtype(), "linear_cross_entropy", [&](auto zero) {
    using T = decltype(zero);
    const T weight = static_cast<T>(1 / static_cast<double>(std::max<std::int64_t>(count, 1)));
    for (std::int64_t first = 0; first < problem.tokens; first += rows_at_once)
      loss_of_block(problem, first, std::min(rows_at_once, problem.tokens - first), weight,
                    scratch.data<T>(), losses.data() + first);
  });
  double total = 0;
  for (const double loss : losses) total += loss;
  return count == 0 ? 0 : total / static_cast<double>(count);
}

// gradient, made for a loss whose own gradient is 1, for one whose gradient is `factor`: in its own
// memory, which nobody else knows.
Tensor scaled(const Tensor& gradient, double factor, DType kept) {
  if (gradient.defined() && factor != 1) {
    dispatch(gradient.dtype(), "linear_cross_entropy", [&](auto zero) {
      using T = decltype(zero);
      T* const g = gradient.data<T>();
      const T f = static_cast<T>(factor);
      parallel_for(gradient.elements(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) g[i] *= f;
      });
    });
  }
  return rounded(gradient, kept);
}

// On a device: logits are fp32, also of bf16, and dw is added up in fp32 and rounded at the end.
// Nothing waits for the loss.
Tensor linear_cross_entropy_on_device(const LossProblem& problem, std::int64_t count,
                                      std::int64_t rows_at_once) {
  const Tensor &x = problem.x, &w = problem.w;
  const DeviceKernels& kernels = device_kernels(x.device());
  const std::int64_t n = problem.n, vocabulary = problem.vocabulary, tokens = problem.tokens;
  const Tensor losses = Tensor::empty({tokens}, DType::fp32, x.device()),
               log_sums = Tensor::empty({tokens}, DType::fp32, x.device());
  const Tensor scratch =
      Tensor::empty({std::min(rows_at_once, tokens), vocabulary}, DType::fp32, x.device());
  for (std::int64_t first = 0; first < tokens; first += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, tokens - first);
    const auto part = [&](const Tensor& all, std::int64_t size) {
      return make_view(all, all.offset() + first * size, {rows, size}, {size, 1});
    };
    const Tensor z = make_view(scratch, 0, {rows, vocabulary}, {vocabulary, 1});
    kernels.gemm({.b = transposed, .m = rows, .n = vocabulary, .k = n}, part(x, n), w, z);
    if (!problem.wants_gradient()) {
      kernels.cross_entropy(z, part(problem.targets, 1), problem.ignore_index, part(losses, 1),
                            part(log_sums, 1));
      continue;
    }
    const Tensor dz =
        x.dtype() == DType::bf16 ? Tensor::empty(z.shape(), DType::bf16, x.device()) : z;
    kernels.cross_entropy_with_gradient(z, part(problem.targets, 1), problem.ignore_index,
                                        weight_of(count), part(losses, 1), dz);
    if (problem.dx.defined())
      kernels.gemm({.m = rows, .n = n, .k = vocabulary}, dz, w, part(problem.dx, n));
    if (problem.dw.defined())
      kernels.gemm(
          {.a = transposed, .m = vocabulary, .n = n, .k = rows, .beta = first > 0 ? 1.0f : 0.0f},
          dz, part(x, n), problem.dw);
  }
  Tensor loss = Tensor::empty({}, DType::fp32, x.device());
  kernels.sum(losses, weight_of(count), loss);
  return record("linear_cross_entropy", loss, {x, w},
                [dx = problem.dx, dw = problem.dw, kept = x.dtype()](
                    const Node&, const Tensor& dloss) -> Gradients {
                  for (const Tensor& gradient : {dx, dw})
                    if (gradient.defined())
                      device_kernels(dloss.device()).scale_by(gradient, dloss, 1, gradient);
                  return {dx, rounded(dw, kept)};
                });
}

}  // namespace

// x [tokens, n], W [V, n], targets [tokens] -> loss = cross_entropy(x W^T, targets), a block of
// rows after the other:
//
//     z = x W^T                                                 [block, V]    the only logits that there are at a time
//     loss += log sum_v exp(z[t, v]) - z[t, target]
//     dz = (softmax(z[t])[v] - [v == target]) / count           [block, V]    in the place of z
//     dx = dz W                                                 [block, n]
//     dW += dz^T x                                              [V, n]
//
// The gradients are made on the way forward, for there z is at hand; made again in backward, it
// would cost a third more. So backward has only to multiply by the gradient of the loss. The idea
// is that of Hsu et al., "Liger Kernel" (2024).
Tensor linear_cross_entropy(const Tensor& x_input, const Tensor& weight,
                            const Tensor& targets_input, std::int32_t ignore_index,
                            std::int64_t rows_at_once) {
  require_ids("linear_cross_entropy", "targets", targets_input);
  require_alike("linear_cross_entropy", x_input, weight);
  require(x_input.dim() >= 1 && weight.dim() == 2 && weight.size(0) > 0 &&
              x_input.size(-1) == weight.size(1) &&
              Shape(x_input.shape().begin(), x_input.shape().end() - 1) == targets_input.shape(),
          "linear_cross_entropy: expected x [..., n], weight [V, n] and targets [...], got {}, {} "
          "and {}",
          x_input.shape(), weight.shape(), targets_input.shape());
  const Tensor x = x_input.contiguous(), w = weight.contiguous(),
               targets = targets_input.to(Device::cpu).contiguous();
  const DType kept = x.dtype(), computed = wide_type(kept);
  const std::int64_t vocabulary = w.size(0), n = w.size(1), tokens = targets.elements();
  const std::int64_t count =
      count_targets("linear_cross_entropy", targets, vocabulary, ignore_index);
  const bool history = grad_enabled();
  rows_at_once = rows_at_once > 0 ? rows_at_once : cross_entropy_rows(tokens, vocabulary);
  if (x.device() != Device::cpu)
    return linear_cross_entropy_on_device(
        {.x = x,
         .w = w,
         .targets = targets.to(x.device()),
         .tokens = tokens,
         .n = n,
         .vocabulary = vocabulary,
         .ignore_index = ignore_index,
         .dx = history && x.requires_grad() ? Tensor::empty(x.shape(), kept, x.device()) : Tensor(),
         .dw = history && w.requires_grad() ? Tensor::zeros(w.shape(), DType::fp32, x.device())
                                            : Tensor()},
        count, rows_at_once);
  const LossProblem problem{
      .x = wide(x),
      .w = wide(w),
      .targets = targets,
      .tokens = tokens,
      .n = n,
      .vocabulary = vocabulary,
      .ignore_index = ignore_index,
      .dx = history && x.requires_grad() ? Tensor::empty(x.shape(), computed) : Tensor(),
      .dw = !history || !w.requires_grad() ? Tensor()
            : tokens == 0                  ? Tensor::zeros(w.shape(), computed)
                                           : Tensor::empty(w.shape(), computed)};
  const double loss = loss_and_gradients(problem, count, rows_at_once);
  return record(
      "linear_cross_entropy", Tensor::scalar(loss, computed), {x, w},
      [dx = problem.dx, dw = problem.dw, kept](const Node&, const Tensor& dloss) -> Gradients {
        return {scaled(dx, dloss.item(), kept), scaled(dw, dloss.item(), kept)};
      });
}

}  // namespace ringside::autograd
