// sum, mean, mse_loss: from many numbers to one, added up in fp64.
#include <array>
#include <numeric>
#include <vector>

#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/parallel.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"

namespace ringside::autograd {

namespace {

constexpr std::int64_t grain = 1 << 16;

// Sum of term(i) over [0, count). Each piece sums its own, and these are added in order: the bits
// depend on the number of threads only.
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

// The device's sum stays on the device, as do the gradients that follow: nobody waits for numbers.
Tensor scaled_sum_on_device(const char* op, const Tensor& x, double factor) {
  Tensor total = Tensor::empty({}, x.dtype(), x.device());
  device_kernels(x.device()).sum(x, factor, total);
  return record(op, total, {x},
                [shape = x.shape(), factor](const Node&, const Tensor& dy) -> Gradients {
                  const Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
                  device_kernels(dy.device()).fill_with(dx, dy, factor);
                  return {dx};
                });
}

// x [...] -> factor * sum of x, a scalar.  dx = factor * dy everywhere
Tensor scaled_sum(const char* op, const Tensor& x_input, double factor) {
  const Tensor x = x_input.contiguous();
  dispatch(x.dtype(), op, [](auto) {});  // the type is checked on every device
  if (x.device() != Device::cpu) return scaled_sum_on_device(op, x, factor);
  double total = 0;
  dispatch(x.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    total = sum_of(x.elements(),
                   [px = x.data<T>()](std::int64_t i) { return static_cast<double>(px[i]); });
  });
  return record(op, Tensor::scalar(factor * total, x.dtype()), {x},
                [shape = x.shape(), factor](const Node&, const Tensor& dy) -> Gradients {
                  return {Tensor::full(shape, factor * dy.item(), dy.dtype())};
                });
}

Tensor mse_loss_on_device(const Tensor& x, const Tensor& t) {
  const double n = static_cast<double>(x.elements());
  const auto difference = [x, t] {
    const Tensor d = Tensor::empty(x.shape(), x.dtype(), x.device());
    device_kernels(x.device()).subtract(x, t, d);
    return d;
  };
  Tensor loss = Tensor::empty({}, x.dtype(), x.device());
  device_kernels(x.device()).sum_of_squares(std::array{difference()}, 1 / n, loss);
  return record("mse_loss", loss, {x, t},
                [difference, n](const Node& node, const Tensor& dy) -> Gradients {
                  const auto gradient = [&](double factor) {  // factor dy (x - t)
                    const Tensor d = difference();
                    device_kernels(d.device()).scale_by(d, dy, factor, d);
                    return d;
                  };
                  return {node.needs(0) ? gradient(2 / n) : Tensor(),
                          node.needs(1) ? gradient(-2 / n) : Tensor()};
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

// x, t (target), both [...] -> mean of (x - t)^2, a scalar.  dx = 2 (x - t) / n * dy, dt = -dx
Tensor mse_loss(const Tensor& x_input, const Tensor& target) {
  require_alike("mse_loss", x_input, target);
  require_same_shape("mse_loss", x_input, target);
  require(x_input.elements() > 0, "mse_loss: expected at least one element, got shape {}",
          x_input.shape());
  const Tensor x = x_input.contiguous(), t = target.contiguous();
  dispatch(x.dtype(), "mse_loss", [](auto) {});
  if (x.device() != Device::cpu) return mse_loss_on_device(x, t);
  const double n = static_cast<double>(x.elements());
  double total = 0;
  dispatch(x.dtype(), "mse_loss", [&](auto zero) {
    using T = decltype(zero);
    total = sum_of(x.elements(), [px = x.data<T>(), pt = t.data<T>()](std::int64_t i) {
      const double difference = static_cast<double>(px[i]) - static_cast<double>(pt[i]);
      return difference * difference;
    });
  });
  return record("mse_loss", Tensor::scalar(total / n, x.dtype()), {x, t},
                [x, t, n](const Node& node, const Tensor& dy) -> Gradients {
                  const auto gradient = [&](double factor) {  // factor * (x - t)
                    Tensor dx = Tensor::empty(x.shape(), x.dtype());
                    dispatch(x.dtype(), "mse_loss", [&](auto zero) {
                      using T = decltype(zero);
                      const T *const px = x.data<T>(), *const pt = t.data<T>(),
                                     f = static_cast<T>(factor);
                      T* const pdx = dx.data<T>();
                      parallel_for(x.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
                        for (std::int64_t i = begin; i < end; ++i) pdx[i] = f * (px[i] - pt[i]);
                      });
                    });
                    return dx;
                  };
                  const double factor = 2 * dy.item() / n;
                  return {node.needs(0) ? gradient(factor) : Tensor(),
                          node.needs(1) ? gradient(-factor) : Tensor()};
                });
}

}  // namespace ringside::autograd
