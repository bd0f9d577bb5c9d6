// sum, mean, mse_loss: a tensor to one number, summed in fp64 on the CPU.
//
// On a device the result stays there, and so does its gradient: the host waits for no number.
#include <array>
#include <numeric>
#include <vector>

#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/threads/parallel.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

constexpr std::int64_t grain = 1 << 16;  // elements that are enough work for one more thread

// The sum of term(i) over [0, count). Each piece sums its own terms, and the sums are added in
// order, so the bits depend on the number of threads only.
template <class Term>
double sum_of(std::int64_t count, Term term) {
  std::vector<double> of_piece(static_cast<std::size_t>(pieces_of(count, grain)), 0.0);
  parallel_for_pieces(count, grain, [&](int piece, std::int64_t begin, std::int64_t end) {
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t i = begin; i < end; ++i) total += term(i);
    of_piece[static_cast<std::size_t>(piece)] = total;
  });
  return std::accumulate(of_piece.begin(), of_piece.end(), 0.0);
}

// x [...] -> y = factor * sum of x, a scalar.  dx = factor * dy everywhere
Tensor scaled_sum(const char* op, const Tensor& x_input, double factor) {
  const Tensor x = x_input.contiguous(), y = Tensor::empty({}, x.dtype(), x.device());
  dispatch(x.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    if (x.device() != Device::cpu) return device_kernels(x.device()).sum(x, factor, y);
    const T* const px = x.data<T>();
    y.fill_(factor *
            sum_of(x.elements(), [&](std::int64_t i) { return static_cast<double>(px[i]); }));
  });
  return record(op, y, {x},
                [shape = x.shape(), factor](const Node&, const Tensor& dy) -> Gradients {
                  const Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
                  if (dx.device() == Device::cpu)
                    dx.fill_(factor * dy.item());
                  else
                    device_kernels(dx.device()).fill_with(dx, dy, factor);
                  return {dx};
                });
}

}  // namespace

Tensor sum(const Tensor& x) {
  return scaled_sum("sum", x, 1);
}

Tensor mean(const Tensor& x) {
  require(x.elements() > 0, "mean: expected at least one element, got shape {}", x.shape());
  return scaled_sum("mean", x, 1.0 / static_cast<double>(x.elements()));
}

namespace {

// The mean of (x - t)^2, written to `loss`.
void mean_square(const Tensor& x, const Tensor& t, const Tensor& loss) {
  const double n = static_cast<double>(x.elements());
  dispatch(x.dtype(), "mse_loss", [&](auto zero) {
    using T = decltype(zero);
    if (x.device() != Device::cpu) {
      const DeviceKernels& kernels = device_kernels(x.device());
      const Tensor difference = empty_like(x);
      kernels.subtract(x, t, difference);
      return kernels.sum_of_squares(std::array{difference}, 1 / n, loss);
    }
    const T *const px = x.data<T>(), *const pt = t.data<T>();
    const double total = sum_of(x.elements(), [&](std::int64_t i) {
      const double difference = static_cast<double>(px[i]) - static_cast<double>(pt[i]);
      return difference * difference;
    });
    loss.fill_(total / n);
  });
}

// factor (x - t) / n * dloss
Tensor scaled_difference(const Tensor& x, const Tensor& t, const Tensor& dloss, double factor) {
  const Tensor dx = empty_like(x);
  const double n = static_cast<double>(x.elements());
  if (x.device() != Device::cpu) {
    const DeviceKernels& kernels = device_kernels(x.device());
    kernels.subtract(x, t, dx);
    kernels.scale_by(dx, dloss, factor / n, dx);
    return dx;
  }
  const double scale = factor * dloss.item() / n;
  dispatch(x.dtype(), "mse_loss", [&](auto zero) {
    using T = decltype(zero);
    const T *const px = x.data<T>(), *const pt = t.data<T>(), f = static_cast<T>(scale);
    T* const pdx = dx.data<T>();
    parallel_for(x.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) pdx[i] = f * (px[i] - pt[i]);
    });
  });
  return dx;
}

}  // namespace

// x, t (target), both [...] -> mean of (x - t)^2, a scalar.  dx = 2 (x - t) / n * dloss, dt = -dx
Tensor mse_loss(const Tensor& x_input, const Tensor& target) {
  require_alike("mse_loss", x_input, target);
  require_same_shape("mse_loss", x_input, target);
  require(x_input.elements() > 0, "mse_loss: expected at least one element, got shape {}",
          x_input.shape());
  const Tensor x = x_input.contiguous(), t = target.contiguous();
  const Tensor loss = Tensor::empty({}, x.dtype(), x.device());
  mean_square(x, t, loss);
  return record("mse_loss", loss, {x, t},
                [x, t](const Node& node, const Tensor& dloss) -> Gradients {
                  return {node.needs(0) ? scaled_difference(x, t, dloss, 2) : Tensor(),
                          node.needs(1) ? scaled_difference(x, t, dloss, -2) : Tensor()};
                });
}

}  // namespace ringside::autograd
